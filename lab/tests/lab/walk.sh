# Sets each of the kernel's settings (each EVERY-th from FIRST on, and those that are known to move others) to another value,
# restores it, and compares the whole of /proc/sys with what was before.
export WHYLATE_STATE_DIR=/tmp/walk
BY_ITSELF='ns_last_pid|/random/|dentry-state|inode-nr|inode-state|file-nr|aio-nr|nf_conntrack_count|pty/nr|stat_refresh|tainted'
KNOWN='vm/dirty_bytes vm/dirty_ratio vm/dirty_background_bytes vm/dirty_background_ratio vm/overcommit_ratio
vm/overcommit_kbytes kernel/watchdog kernel/soft_watchdog kernel/nmi_watchdog net/ipv4/ip_forward vm/nr_hugepages
kernel/core_pattern kernel/modprobe kernel/unprivileged_bpf_disabled kernel/kexec_load_disabled vm/drop_caches
vm/compact_memory net/ipv4/route/flush kernel/perf_event_max_sample_rate kernel/perf_cpu_time_max_percent'
snapshot() {
    grep -rs '' /proc/sys --exclude-dir=binfmt_misc --exclude=stat_refresh | grep -vE "$BY_ITSELF" | sort
}
others() {
    number=$1
    case $number in
        *[!0-9-]*) set -- $number; [ "$1" -ge 0 ] 2>/dev/null && echo "$(($1 + 1)) ${*#$1}" || echo "x$number" ;;
        *) printf '%s\n' "$((number + 1))" "$((number - 1))" 1 0 2 "$((number * 2))" ;;
    esac
}
keys() {
    for key in $KNOWN; do [ -e "/proc/sys/$key" ] && echo "$key"; done
    find /proc/sys -path /proc/sys/fs/binfmt_misc -prune -o -type f -perm -u+w -print | sort |
        sed 's,^/proc/sys/,,' | awk -v every="$EVERY" -v first="$FIRST" 'NR % every == first % every'
}
snapshot >/tmp/before
tried=0 changed=0 refused=0 holes=0
for key in $(keys); do
    tried=$((tried + 1)) done=
    old=$(tr '\t' ' ' <"/proc/sys/$key" 2>/dev/null | head -c 300)
    others "$old" | while read -r value; do
        [ "$value" = "$old" ] && continue
        whylate treat apply sysctl "$key" "$value" >/tmp/out 2>&1 && { echo "$value"; break; }
    done >/tmp/value
    if [ -s /tmp/value ]; then
        changed=$((changed + 1))
        whylate treat restore >/tmp/out 2>&1 || { echo "hole $key $(cat /tmp/value): $(cat /tmp/out)"; holes=$((holes + 1)); }
    else
        refused=$((refused + 1))
    fi
    snapshot >/tmp/now
    if ! diff /tmp/before /tmp/now >/tmp/differs; then
        echo "hole $key $(cat /tmp/value): $(grep '^[<>]' /tmp/differs | tr '\n' ' ')"
        holes=$((holes + 1))
        cp /tmp/now /tmp/before
    fi
done
echo "walk: $tried tried, $changed changed and restored, $refused refused, $holes holes"
[ $holes = 0 ]
