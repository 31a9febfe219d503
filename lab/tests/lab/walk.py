"""Sets each of the kernel's settings (each EVERY-th from FIRST on, and those known to move others) to another value,
restores it, and compares all settings with what was before. Ends with 1 when one differs, or when `restore` fails."""
import collections, glob, os, re, stat, subprocess, sys

EVERY, FIRST, OF = int(os.environ["EVERY"]), int(os.environ["FIRST"]), os.environ.get("OF", "")
os.environ["WHYLATE_STATE_DIR"] = "/tmp/walk"
GROUP = "/sys/fs/cgroup/walked"
# Folders, and how deep they are walked.
PLACES = [
    ("/proc/sys", 9), ("/proc/irq", 1), ("/sys/devices/system", 6), ("/sys/devices/virtual/workqueue", 2),
    ("/sys/devices/virtual/bdi/*", 0), ("/sys/kernel/mm", 6), ("/sys/kernel", 0), ("/sys/kernel/debug/sched", 3),
    ("/sys/block/*", 0), ("/sys/block/*/queue", 2), ("/sys/block/*/power", 0), ("/sys/class/net/*", 0),
    ("/sys/class/net/*/queues", 3), ("/sys/class/net/*/power", 0), ("/sys/module/*/parameters", 0),
    ("/sys/bus/pci/devices/*", 0), ("/sys/bus/pci/devices/*/power", 0), ("/sys/bus/pci/devices/*/link", 0),
    ("/sys/class/thermal/*", 0), ("/sys/class/rtc/*", 0), ("/sys/class/graphics/*", 0), ("/sys/class/vtconsole/*", 0),
    ("/sys/devices/cpu", 0), ("/sys/power", 1), ("/sys/fs/cgroup", 0), (GROUP, 0),
]
# What changes by itself, and files of sysfs that are no text.
BY_ITSELF = re.compile(
    r"ns_last_pid|/random/|dentry-state|inode-nr|inode-state|file-nr|aio-nr|nf_conntrack_count|pty/nr|stat_refresh|tainted"
    r"|/wakeup_count$|/binfmt_misc|\.pressure$|/cgroup\.(procs|threads)$|/since_epoch$|/page_idle/|/(config|rom|vpd)$|/resource\d"
)
KNOWN = """vm/dirty_bytes vm/dirty_ratio vm/dirty_background_bytes vm/dirty_background_ratio vm/overcommit_ratio
vm/overcommit_kbytes kernel/watchdog kernel/soft_watchdog kernel/nmi_watchdog net/ipv4/ip_forward vm/nr_hugepages
kernel/core_pattern kernel/modprobe kernel/unprivileged_bpf_disabled kernel/kexec_load_disabled vm/drop_caches
vm/compact_memory net/ipv4/route/flush kernel/perf_event_max_sample_rate kernel/perf_cpu_time_max_percent""".split()
ALSO = """/sys/block/vda/queue/scheduler /sys/kernel/mm/transparent_hugepage/enabled /sys/devices/system/cpu/cpu1/online
/sys/devices/system/clocksource/clocksource0/current_clocksource /sys/devices/virtual/workqueue/cpumask""".split()
# Values that an administrator set: writing another setting sets them to what the kernel finds right.
BY_HAND = {
    "/sys/block/vda/queue/scheduler": "mq-deadline", "/sys/block/vda/queue/iosched/read_expire": "123",
    "/sys/block/vda/queue/nr_requests": "77", "/proc/sys/vm/min_free_kbytes": "5003",
    "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us": "11",
}
CHOICES = [
    ("enabled", "disabled"), ("on", "auto"), ("on", "off"), ("online", "offline"), ("Y", "N"), ("write back", "write through"),
]


def read(path):
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return None


def is_setting(path):
    about = os.lstat(path)
    is_text = not path.startswith("/sys/") or path.startswith(("/sys/fs/", "/sys/kernel/debug/")) or about.st_size == 4096
    return stat.S_ISREG(about.st_mode) and about.st_mode & 0o600 == 0o600 and is_text and not BY_ITSELF.search(path)


def below(folder, depth):
    try:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                if depth > 0 and entry.name != "binfmt_misc":
                    yield from below(entry.path, depth - 1)
            elif entry.is_file(follow_symlinks=False) and is_setting(entry.path):
                yield entry.path
    except OSError:
        return


def settings():
    folders = ((os.path.realpath(one), depth) for place, depth in PLACES for one in sorted(glob.glob(place)))
    return sorted({path for folder, depth in folders for path in below(folder, depth)})


def snapshot():
    return {path: value for path in settings() if (value := read(path)) is not None}


def others(path, old):
    """Other values that may be legal."""
    name, folder = os.path.basename(path), os.path.dirname(path)
    for available in (f"{folder}/available_{name.removeprefix('current_')}", f"{folder}/{name.replace('_governor', '_available_governors')}"):
        if available != path and os.path.exists(available):
            return read(available).split()
    words = old.split()
    if any(word.startswith("[") for word in words):
        return [word for word in words if not word.startswith("[")]
    for pair in CHOICES:
        if old in pair:
            return [one for one in pair if one != old]
    if re.fullmatch(r"-?\d+", old):
        number = int(old)
        return [str(number + 1), str(number - 1), "1", "0", "2", str(number * 2)]
    if re.fullmatch(r"[0-9a-f]+(,[0-9a-f]+)*", old) or re.fullmatch(r"[0-9,-]+", old):
        return ["1", "0", "2", "3"]
    if len(words) > 1 and all(re.fullmatch(r"-?\d+", word) for word in words):
        numbers = [int(word) for word in words]
        return [" ".join(map(str, one)) for one in
                ([numbers[0] + 1] + numbers[1:], numbers[:-1] + [numbers[-1] + 1], [number + 1 for number in numbers])]
    return ["1", "0", "2"] if old in ("", "max", "none") else ["walked", "1"]


def whylate(*arguments):
    done = subprocess.run(["whylate", "treat", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


def apply(path, old):
    """The value that was set, or the reason for which none was."""
    reason = "no other value"
    for value in [value for value in others(path, old) if value != old][:4]:
        of_proc = path.startswith("/proc/sys/")
        status, said = whylate("apply", *(["sysctl", path[10:]] if of_proc else ["sysfs", path]), value)
        if status == 0:
            return value, None
        reason = f"{status}: {said}"
        if status == 3 or "the kernel does not accept this value" not in said:
            break
    return None, reason


def main():
    os.makedirs(GROUP, exist_ok=True)
    for path, value in BY_HAND.items():
        try:
            with open(path, "w") as file:
                file.write(value)
        except OSError as error:
            print(f"not set by hand: {path}: {error}")
    first, before = snapshot(), snapshot()
    quiet = {path for path, value in before.items() if first.get(path) == value}
    tried = [f"/proc/sys/{key}" for key in KNOWN if os.path.exists(f"/proc/sys/{key}")]
    tried += [os.path.realpath(path) for path in ALSO if os.path.exists(path)]
    tried += [path for number, path in enumerate(settings()) if number % EVERY == FIRST % EVERY]
    tried = [path for path in tried if path.startswith(OF)]
    changed, holes, refused = 0, 0, collections.Counter()
    for path in tried:
        old = (read(path) or "").strip().replace("\t", " ")
        value, reason = apply(path, old)
        found = []
        if value is not None:
            changed += 1
            status, said = whylate("restore")
            if status != 0:
                found.append(f"restore ended with {status}: {said}")
        else:
            if reason.startswith("3:"):
                found.append(reason)
            refused[re.sub(r"[`/][^ ]*", "…", reason.split("\n")[0])[:200]] += 1
        now = snapshot()
        for one in sorted(quiet & (before.keys() | now.keys())):
            if before.get(one) != now.get(one):
                found.append(f"{one} was {before.get(one)!r} and is {now.get(one)!r}")
        before = now
        if found:
            holes += 1
            print(f"hole {path} {old!r} -> {value!r}: {'; '.join(found)}", flush=True)
    for reason, count in refused.most_common():
        print(f"refused {count}: {reason}")
    print(f"walk: {len(tried)} tried, {changed} changed and restored, {sum(refused.values())} refused, {holes} holes")
    return min(holes, 1)


sys.exit(main())
