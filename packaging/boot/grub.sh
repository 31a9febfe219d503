#!/bin/sh
# Boots a machine once through an extra entry of GRUB: `whylate fix --campaign DIR --boot-loader grub`. The protocol is in
# packaging/boot/README.md.
#
# The entry is a copy of the default one with more words, in `custom.cfg`, which grub.cfg reads. `next_entry` in the
# environment block selects it; GRUB clears `next_entry` before it boots. WHYLATE_HOST_ROOT stands for `/` (for tests).
set -eu
root=${WHYLATE_HOST_ROOT:-}
entry=whylate-campaign
begin='# begin of a campaign of whylate'
end='# end of a campaign of whylate'

fail() {
    echo "$*" >&2
    exit 1
}

folder=
for one in /boot/grub /boot/grub2; do
    if [ -z "$folder" ] && [ -e "$root$one/grub.cfg" ]; then folder=$one; fi
done
custom=$root$folder/custom.cfg
block=$root$folder/grubenv

# Replaces the file $1 by standard input; a power cut leaves the old file or the new one.
write() {
    cat >"$1.new" || { rm -f "$1.new"; fail "cannot write $1"; }
    sync
    mv "$1.new" "$1"
    sync
}

edit() {
    tool=$(command -v grub-editenv || command -v grub2-editenv) || fail 'grub-editenv is not installed'
    "$tool" "$block" "$@"
}

# The lines of the first menu entry for the kernel $1 that is not for recovery, with the words $2 behind its command
# line. What is booted once must not become the saved default.
entry_of() {
    kernel=$1 words=$2 awk '
        /^[ \t]*menuentry .*\{[ \t]*$/ { inside = 1; found = 0; body = ""; next }
        !inside { next }
        /^[ \t]*\}[ \t]*$/ { if (found) { printf "%s", body; done = 1; exit } inside = 0; next }
        $1 == "savedefault" && NF == 1 { next }
        $1 == "linux" || $1 == "linux16" || $1 == "linuxefi" {
            ending = "-" ENVIRON["kernel"]
            start = length($2) - length(ending) + 1
            is_recovery = / (single|recovery|systemd\.unit=rescue\.target)( |$)/
            if (start > 0 && substr($2, start) == ending && !is_recovery) found = 1
            sub(/[ \t]+$/, "")
            $0 = $0 " " ENVIRON["words"]
        }
        { body = body $0 "\n" }
        END { exit !done }' "$root$folder/grub.cfg" || fail "no menu entry of $folder boots Linux $1 (blscfg entries are not supported)"
}

# custom.cfg without the part of a campaign.
own() {
    [ ! -e "$custom" ] || awk -v begin="$begin" -v end="$end" '$0 == begin { ours = 1 } !ours { print } $0 == end { ours = 0 }' "$custom"
}

check() {
    [ -n "$folder" ] || fail 'there is no /boot/grub/grub.cfg'
    for word in custom.cfg next_entry; do
        grep -q "$word" "$root$folder/grub.cfg" || fail "grub.cfg does not read $word; generate it again (update-grub)"
    done
    # GRUB has to clear next_entry, or it would boot the same entry for ever.
    mount=$(folder=$folder awk '
        { place = $2; if (place != "/") place = place "/" }
        index(ENVIRON["folder"] "/", place) == 1 && length(place) >= most { most = length(place); found = $1 " " $3 }
        END { print found }' "$root/proc/mounts")
    case $mount in
    '') fail "/proc/mounts does not show on which file system $folder is" ;;
    /dev/mapper/* | /dev/dm-* | /dev/md*) fail "$folder is on $mount, where GRUB cannot clear next_entry" ;;
    *' ext2' | *' ext3' | *' ext4' | *' xfs' | *' vfat' | *' fuseblk') ;;
    *) fail "$folder is on $mount, where GRUB cannot clear next_entry" ;;
    esac
    for kernel in $WHYLATE_BOOT_KERNELS; do
        entry_of "$kernel" '' >/dev/null
    done
}

once() {
    kept=$(own)
    body=$(entry_of "$WHYLATE_BOOT_KERNEL" "$WHYLATE_BOOT_APPEND")
    {
        [ -z "$kept" ] || printf '%s\n' "$kept"
        printf '%s\n' "$begin" "menuentry 'whylate: campaign' --id '$entry' {" "$body" '}' "$end"
    } | write "$custom"
    edit set "next_entry=$entry"
    sync
}

forget() {
    if grep -q "^next_entry=$entry" "$block" 2>/dev/null; then
        edit unset next_entry
        sync
    fi
    # Of campaigns that an earlier version began.
    if grep -q '^whylate_cmdline=' "$block" 2>/dev/null; then edit unset whylate_cmdline; fi
    grep -qxF "$begin" "$custom" 2>/dev/null || return 0
    kept=$(own)
    if [ -n "$kept" ]; then
        printf '%s\n' "$kept" | write "$custom"
    else
        rm "$custom"
    fi
}

case $1 in
check | once | forget) "$1" ;;
reboot) systemctl reboot ;;
*) exit 64 ;;
esac
