from tplaudit.probes.cost.machine import processor_of


def test_processors():
    assert processor_of("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: B\n", "Board") == "AMD EPYC"
    arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0x{}\nCPU part\t: 0xd0c\n"
    assert processor_of(arm.format("d05")) == "CPU implementer 0x41, CPU part 0xd05, 0xd0c"
    assert processor_of(arm.format("d0c")) == "CPU implementer 0x41, CPU part 0xd0c"
    assert processor_of(arm.format("d0c"), "Raspberry Pi 5\0") == "Raspberry Pi 5"
    assert processor_of(arm.format("d0c") + "Hardware\t: BCM2835\n") == "BCM2835"
    assert processor_of("") == ""
