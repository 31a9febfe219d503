#!/bin/sh
# Boots a machine once through an extra entry of systemd-boot: `whylate fix --campaign DIR --boot-loader systemd-boot`. The
# protocol is in packaging/boot/README.md.
#
# The entry is a file, a copy of the default one with more options; `bootctl set-oneshot` has the firmware remember it for
# one boot. WHYLATE_HOST_ROOT stands for `/` (for tests).
set -eu
root=${WHYLATE_HOST_ROOT:-}
name=whylate-campaign.conf
variables=$root/sys/firmware/efi/efivars
vendor=4a67b082-0a4c-41cf-b6c7-440b29bb8c4f

fail() {
    echo "$*" >&2
    exit 1
}

folder=
for one in /boot /efi /boot/efi /esp; do
    for file in "$root$one"/loader/entries/*.conf; do
        if [ -z "$folder" ] && [ -e "$file" ]; then folder=$one/loader/entries; fi
    done
done
ours=$root$folder/$name

# The last value of the key $1 in standard input, as the loader takes it.
value() {
    awk -v key="$1" '$1 == key { $1 = ""; sub(/^ /, ""); last = $0 } END { print last }'
}

# A name without the counter of tries that the loader puts into it: debian+3.conf.
without_tries() {
    printf '%s' "${1%.conf}" | sed 's/+.*//'
}

# The entry that was booted: UTF-16 behind four bytes of attributes.
selected=
if [ -e "$variables/LoaderEntrySelected-$vendor" ]; then
    selected=$(tail -c +5 "$variables/LoaderEntrySelected-$vendor" | tr -d '\000')
fi

# The files of the entries but ours, the booted one first.
entries() {
    for round in booted others; do
        for file in "$root$folder"/*.conf; do
            [ "$file" != "$ours" ] || continue
            is=others
            [ "$(without_tries "${file##*/}")" != "$(without_tries "$selected")" ] || is=booted
            [ "$is" != "$round" ] || printf '%s\n' "$file"
        done
    done
}

# The file of the entry that boots the kernel $1.
entry_of() {
    found=$(entries | while IFS= read -r file; do
        linux=/$(value linux <"$file")/
        case $linux in
        */"$1"/* | */vmlinuz-"$1"/*) echo "$file" ;;
        *) [ "$(value version <"$file")" != "$1" ] || echo "$file" ;;
        esac
    done | head -n 1)
    [ -n "$found" ] || fail "no entry in $folder boots Linux $1 (unified kernel images are not supported)"
    printf '%s\n' "$found"
}

check() {
    [ -e "$variables/LoaderInfo-$vendor" ] || fail 'systemd-boot did not boot this machine (the EFI variable LoaderInfo is missing)'
    [ -n "$folder" ] || fail 'there are no entries of systemd-boot (in /boot/loader/entries, for example)'
    # A default that is the first of the list, or what was booted last, could be our entry.
    default=
    settings=$root${folder%/entries}/loader.conf
    [ ! -e "$settings" ] || default=$(value default <"$settings")
    is_safe=no
    case $default in
    @*) ;;
    '' | '*'*)
        # An entry without a sort-key is sorted behind all that have one.
        unsorted=$(entries | while IFS= read -r file; do [ -n "$(value sort-key <"$file")" ] || echo "$file"; done)
        [ -n "$unsorted" ] || is_safe=yes
        ;;
    *) is_safe=yes ;;
    esac
    [ ! -e "$variables/LoaderEntryDefault-$vendor" ] || is_safe=yes
    [ "$is_safe" = yes ] || fail "$folder names no default entry, so the entry of a campaign could become the default; set a default entry: bootctl set-default ID (bootctl list shows the ids)"
    for kernel in $WHYLATE_BOOT_KERNELS; do
        entry_of "$kernel" >/dev/null
    done
}

once() {
    file=$(entry_of "$WHYLATE_BOOT_KERNEL")
    # Without what sorts it before others.
    kernel=$WHYLATE_BOOT_KERNEL words=$WHYLATE_BOOT_APPEND awk '
        BEGIN { print "# Made by `whylate fix`"; print "title whylate: campaign, Linux " ENVIRON["kernel"] }
        $1 == "options" { sub(/^[ \t]*options[ \t]*/, " "); options = options $0; next }
        /^[ \t]*#/ || $1 == "title" || $1 == "sort-key" || $1 == "version" || $1 == "machine-id" { next }
        { print }
        END { print "options" options " " ENVIRON["words"] }' "$file" >"$ours.new" || { rm -f "$ours.new"; fail "cannot write $ours"; }
    sync
    mv "$ours.new" "$ours"
    sync
    bootctl set-oneshot "$name"
}

forget() {
    # Only where ours is asked for: another one may be somebody else's.
    [ -e "$ours" ] || return 0
    bootctl set-oneshot ''
    rm "$ours"
}

case $1 in
check | once | forget) "$1" ;;
reboot) systemctl reboot ;;
*) exit 64 ;;
esac
