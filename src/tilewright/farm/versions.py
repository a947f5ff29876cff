"""What this side is, said to the other one."""

from tilewright.measure.record import own_versions

VERSION = own_versions()["tilewright"]
