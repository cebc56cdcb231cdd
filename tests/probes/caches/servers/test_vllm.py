"""vLLM's cache: the names of its blocks are those that its own functions gave."""

import sys

import pytest
from token_ids import TEN
from tplaudit.probes.caches.hashes import chain
from tplaudit.probes.caches.servers.vllm import vllm_hash, vllm_none_hash, vllm_recipe


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the digests are of Python 3.11's pickle")
def test_names_of_blocks():
    none_hash = vllm_none_hash("0")
    first = "762b2e7e1520febd3a0aedb7358e8602facf3924440e18538fce057e23bae91d"
    second = "9e62b5a7ec298f33cb4c7d9e00b659874bb2432d23ad6879ad1746592a2b036b"
    assert none_hash.hex() == "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"
    assert vllm_hash((1, 2, 3, 4), none_hash).hex() == first
    assert [name.hex() for name in chain(TEN, 4, named=vllm_recipe("0"))] == [first, second]
