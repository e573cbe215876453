"""unpack-kernel.py BZIMAGE VMLINUX: the kernel inside Debian's compressed one.

qemu starts an uncompressed kernel directly, and emulating its decompression takes seconds.
"""
import struct
import subprocess
import sys

with open(sys.argv[1], "rb") as file:
    image = file.read()
# the kernel's boot protocol: setup sectors, then the payload's place and length
setup_sectors = image[0x1F1] or 4
offset, length = struct.unpack_from("<II", image, 0x248)
begin = (setup_sectors + 1) * 512 + offset
payload = image[begin : begin + length]
for magic, program in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zX", "xz")):
    if payload.startswith(magic):
        # the payload ends with its length, which the programs complain about
        done = subprocess.run([program, "-dc"], input=payload, capture_output=True, check=False)
        break
else:
    sys.exit("unpack-kernel.py: neither zstd nor xz")
if not done.stdout.startswith(b"\x7fELF"):
    sys.exit("unpack-kernel.py: no kernel in it")
with open(sys.argv[2], "wb") as file:
    file.write(done.stdout)
