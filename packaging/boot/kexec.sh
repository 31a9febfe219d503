#!/bin/sh
# Boots a machine once by kexec, without its boot loader (U-Boot and others that cannot boot an entry once): `whylate fix
# --campaign DIR --boot-loader kexec`. The protocol is in packaging/boot/README.md.
#
# Every boot through the firmware is the default one. Firmware and devices are not reset between two kernels.
# WHYLATE_HOST_ROOT stands for `/` (for tests).
set -eu
root=${WHYLATE_HOST_ROOT:-}
# The command line of a boot outside a campaign.
every_day=$root/var/lib/whylate/kexec.cmdline

fail() {
    echo "$*" >&2
    exit 1
}

check() {
    command -v kexec >/dev/null || fail 'kexec is not installed (kexec-tools)'
    [ "$(cat "$root/proc/sys/kernel/kexec_load_disabled" 2>/dev/null)" = 0 ] || fail 'this kernel does not allow kexec (kernel.kexec_load_disabled is not 0)'
    for kernel in $WHYLATE_BOOT_KERNELS; do
        [ -e "$root/boot/vmlinuz-$kernel" ] || fail "there is no /boot/vmlinuz-$kernel"
    done
}

once() {
    if ! grep -q whylate.boot= "$root/proc/cmdline"; then
        mkdir -p "${every_day%/*}"
        cat "$root/proc/cmdline" >"$every_day"
        sync
    fi
    set -- --load "$root/boot/vmlinuz-$WHYLATE_BOOT_KERNEL" --command-line="$(cat "$every_day") $WHYLATE_BOOT_APPEND"
    [ ! -e "$root/boot/initrd.img-$WHYLATE_BOOT_KERNEL" ] || set -- "$@" --initrd="$root/boot/initrd.img-$WHYLATE_BOOT_KERNEL"
    kexec "$@"
}

forget() {
    [ "$(cat "$root/sys/kernel/kexec_loaded" 2>/dev/null)" != 1 ] || kexec --unload
}

case $1 in
check | once | forget) "$1" ;;
reboot) if [ "$(cat "$root/sys/kernel/kexec_loaded" 2>/dev/null)" = 1 ]; then systemctl kexec; else systemctl reboot; fi ;;
*) exit 64 ;;
esac
