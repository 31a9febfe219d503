#!/bin/bash
# Builds the programs for benches/real_card.sh in the folder .card, which Git ignores: whylate (static), whylate-gpu for C
# libraries from 2018 on, cyclictest and oslat as Debian has them, and loaders of graphics drivers. This needs the network.
#
#     python3 -m venv /tmp/zig && /tmp/zig/bin/pip install ziglang cargo-zigbuild
#     rustup target add x86_64-unknown-linux-musl
#     PATH=/tmp/zig/bin:$PATH benches/real_card_build.sh
#
# PROFILE=dist builds the program as it is shipped, which takes some minutes more.
set -euo pipefail
cd "$(dirname "$0")/.."

C_LIBRARY=2.28
NEWEST_ALLOWED=2.31
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-$PWD/target}
folder=.card

rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/packages"

cargo build --profile "$profile" --target x86_64-unknown-linux-musl --package whylate
cp "$target/x86_64-unknown-linux-musl/$profile/whylate" "$folder/"

# The linker of zig knows the symbols of every version of the C library.
cargo zigbuild --profile "$profile" --target "x86_64-unknown-linux-gnu.$C_LIBRARY" --package whylate-gpu
cp "$target/x86_64-unknown-linux-gnu/$profile/whylate-gpu" "$folder/"
newest=$(objdump -T "$folder/whylate-gpu" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
echo "whylate-gpu needs $newest"
[ "$(printf '%s\n' "GLIBC_$NEWEST_ALLOWED" "$newest" | sort -V | tail -1)" = "GLIBC_$NEWEST_ALLOWED" ] ||
    { echo "whylate-gpu needs $newest; at most GLIBC_$NEWEST_ALLOWED is meant" >&2; exit 1; }

# Without them the pieces say that they are not here.
(
    cd "$folder/packages"
    apt-get download rt-tests libnuma1 libvulkan1 libegl1 libglvnd0 libopengl0 libgl1 libglx0 libgles2 || true
    for package in *.deb; do dpkg-deb -x "$package" files || true; done
)
# Two programs of tens of megabytes: packed, since the size of what can be copied is often limited.
gzip -9 "$folder/whylate" "$folder/whylate-gpu"
for name in cyclictest oslat; do
    file=$(find "$folder/packages" -type f -name "$name" | head -1)
    [ -z "$file" ] || cp "$file" "$folder/"
done
find "$folder/packages" -name 'lib*.so*' -exec cp -a {} "$folder/lib/" \;
rm -rf "$folder/packages"

ls -l "$folder" "$folder/lib"
du -sh "$folder"
