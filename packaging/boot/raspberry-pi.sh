#!/bin/sh
# Boots a Raspberry Pi once through the firmware's `tryboot`: `whylate fix --campaign DIR --boot-loader raspberry-pi`. The
# protocol is in packaging/boot/README.md.
#
# After `reboot '0 tryboot'` the firmware reads tryboot.txt instead of config.txt, once. Ours is a copy of config.txt with a
# command line of its own. Another kernel has to be vmlinuz-VERSION beside config.txt. WHYLATE_HOST_ROOT stands for `/`
# (for tests).
set -eu
root=${WHYLATE_HOST_ROOT:-}
mark='# Made by `whylate fix`'

fail() {
    echo "$*" >&2
    exit 1
}

folder=
for one in /boot/firmware /boot; do
    if [ -z "$folder" ] && [ -e "$root$one/config.txt" ]; then folder=$one; fi
done
place=$root$folder
line=$place/whylate-cmdline.txt
try=$place/tryboot.txt

write() {
    cat >"$1.new" || { rm -f "$1.new"; fail "cannot write $1"; }
    sync
    mv "$1.new" "$1"
    sync
}

is_ours() { head -n 1 "$try" 2>/dev/null | grep -qxF "$mark"; }

check() {
    grep -q 'Raspberry Pi' "$root/proc/device-tree/model" 2>/dev/null || fail 'this is not a Raspberry Pi'
    [ -n "$folder" ] || fail 'there is no /boot/firmware/config.txt'
    [ ! -e "$try" ] || is_ours || fail "$folder/tryboot.txt exists already, and no campaign wrote it"
    [ -e "$(every_day)" ] || fail "there is no $(every_day)"
    running=$(cat "$root/proc/sys/kernel/osrelease")
    for kernel in $WHYLATE_BOOT_KERNELS; do
        [ "$kernel" = "$running" ] || [ -e "$place/vmlinuz-$kernel" ] || fail "there is no $folder/vmlinuz-$kernel"
    done
}

# The file with the default command line.
every_day() {
    name=$(sed -n 's/^cmdline=//p' "$place/config.txt" | tail -n 1)
    echo "$place/${name:-cmdline.txt}"
}

once() {
    printf '%s %s\n' "$(head -n 1 "$(every_day)")" "$WHYLATE_BOOT_APPEND" | write "$line"
    {
        echo "$mark"
        grep -v '^cmdline=' "$place/config.txt" || [ $? = 1 ]
        printf '[all]\ncmdline=%s\n' "${line##*/}"
        if [ -e "$place/vmlinuz-$WHYLATE_BOOT_KERNEL" ]; then
            echo "kernel=vmlinuz-$WHYLATE_BOOT_KERNEL"
            [ ! -e "$place/initrd.img-$WHYLATE_BOOT_KERNEL" ] || echo "initramfs initrd.img-$WHYLATE_BOOT_KERNEL followkernel"
        fi
    } | write "$try"
}

forget() {
    if is_ours; then rm "$try"; fi
    rm -f "$line"
    sync
}

case $1 in
check | once | forget) "$1" ;;
reboot) if is_ours; then systemctl reboot --reboot-argument='0 tryboot'; else systemctl reboot; fi ;;
*) exit 64 ;;
esac
