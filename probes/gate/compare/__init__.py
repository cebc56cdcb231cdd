"""What differs between two versions of a template, and which differences are one."""
