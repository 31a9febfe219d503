"""Sets each of the kernel's settings (or COUNT that SEED chooses, or those below OF; at most STEP of those after AFTER) to another
value, restores it, and compares all settings with what was before: once for BATCH of them, and after each one of them again where
something differs. A value that also moves without a change is not quiet, and a difference counts when it comes a second time.
Writes what it found into $OUT/walk.json. Ends with 1 when there is a difference, or when `restore` fails."""
import collections, glob, json, os, random, re, shutil, stat, subprocess, sys, time

COUNT, SEED, OF = int(os.environ.get("COUNT", "0")), os.environ.get("SEED", "0"), os.environ.get("OF", "")
AFTER, STEP = os.environ.get("AFTER", ""), int(os.environ.get("STEP", "0"))
BATCH = 8
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
    """Also what can be written and not read: that has to be refused."""
    about = os.lstat(path)
    is_text = not path.startswith("/sys/") or path.startswith(("/sys/fs/", "/sys/kernel/debug/")) or about.st_size == 4096
    return stat.S_ISREG(about.st_mode) and about.st_mode & 0o200 and is_text and not BY_ITSELF.search(path)


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


def write(path, value):
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        return error


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


class Walk:
    def __init__(self):
        # What moves within some seconds does so by itself.
        walks = [snapshot() for _ in range(4) if time.sleep(1) is None]
        self.base = walks[-1]
        self.quiet = {path for path, value in self.base.items() if all(walk.get(path) == value for walk in walks)}
        self.noise = set(self.base) - self.quiet
        self.changed, self.holes, self.once, self.refused = set(), {}, {}, {}

    def differences(self):
        """What is not as it was."""
        now = snapshot()
        return {path: (self.base.get(path), now.get(path)) for path in sorted(self.quiet | (now.keys() - self.base.keys()))
                if path not in self.noise and self.base.get(path) != now.get(path)}

    def put_back(self, differences):
        """Writes what was before, so that the next difference is one, too; what cannot be written is the new state."""
        for path, (old, _) in differences.items():
            inside = re.search(r"\[(.*?)\]", old or "")
            if old is not None:
                write(path, inside.group(1) if inside else old)
        now = snapshot()
        for path in differences:
            self.base.pop(path, None)
            if path in now:
                self.base[path] = now[path]
                self.quiet.add(path)

    def set(self, path):
        """Sets one; what is wrong with that."""
        old = read(path)
        value, reason = apply(path, (old or "").strip().replace("\t", " "))
        if value is None:
            self.refused[path] = reason
            return [reason] if reason.startswith("3:") else []
        self.changed.add(path)
        return [f"it cannot be read, and {value} was set"] if old is None else []

    def change(self, path):
        """Sets and restores one."""
        found = self.set(path)
        status, said = whylate("restore")
        if status != 0:
            shutil.rmtree("/tmp/walk", ignore_errors=True)
        return found if status == 0 else [*found, f"restore ended with {status}: {said}"]

    def control(self):
        """As long as a change takes, without one: what differs now moves by itself."""
        for _ in range(2):
            whylate("apply", "sysctl", "vm.stat_interval", "7")
            whylate("restore")
        moved = self.differences()
        self.noise |= moved.keys()
        self.put_back(moved)

    def closer(self, path):
        """Whether this change leaves the same difference twice."""
        self.change(path)
        first = self.differences()
        if not first:
            return
        self.put_back(first)
        self.control()
        self.change(path)
        second = self.differences()
        self.put_back(second)
        for one in first.keys() - self.noise:
            old, now = first[one]
            is_hole = one in second or self.base.get(one) != old
            (self.holes if is_hole else self.once).setdefault(path, []).append(f"{one} was {old!r} and is {now!r}")

    def batch(self, paths):
        wrong = {path: found for path in paths if (found := self.set(path))}
        status, said = whylate("restore")
        if status != 0 or wrong:
            print("restored with", status, said, wrong)
            # What cannot be brought back is not tried again with each of the next ones.
            shutil.rmtree("/tmp/walk", ignore_errors=True)
            for path in paths:
                if path in wrong or path not in self.refused:
                    if found := self.change(path):
                        self.holes.setdefault(path, []).extend(found)
        found = self.differences()
        if not found:
            return
        print("differs:", found)
        known = set(self.holes)
        self.put_back(found)
        self.control()
        if not found.keys() - self.noise:
            return
        for path in paths:
            if path not in self.refused:
                self.closer(path)
        # What is of none of them alone.
        if not set(self.holes) - known and (found := {one: it for one, it in found.items() if one not in self.noise}):
            lost = [one for one, (old, _) in found.items() if self.base.get(one) != old]
            (self.holes if lost else self.once)[" ".join(paths)] = [f"{one} was {old!r} and is {now!r}" for one, (old, now) in found.items()]


def main():
    os.makedirs(GROUP, exist_ok=True)
    for path, value in BY_HAND.items():
        if error := write(path, value):
            print(f"not set by hand: {path}: {error}")
    everything = settings()
    tried = [path for path in everything if path.startswith(tuple(OF.split(",")))]
    if COUNT:
        known = [f"/proc/sys/{key}" for key in KNOWN] + [os.path.realpath(path) for path in ALSO]
        chosen = random.Random(SEED)
        known = [path for path in tried if path in known]
        tried = chosen.sample(known, min(COUNT // 4, len(known))) + chosen.sample(tried, min(COUNT, len(tried)))
    left = [path for path in tried if path > AFTER] if STEP else tried
    tried = left[: STEP or None]
    began, walk = time.time(), Walk()
    for first in range(0, len(tried), BATCH):
        walk.batch(tried[first : first + BATCH])
        print(f"{time.time() - began:.0f} s, {first}: {tried[first]}", file=sys.stderr, flush=True)
    reasons = collections.Counter(re.sub(r"[`/][^ ]*", "…", said.split("\n")[0])[:200] for said in walk.refused.values())
    for reason, count in reasons.most_common():
        print(f"refused {count}: {reason}")
    for word, found in (("once", walk.once), ("hole", walk.holes)):
        for path, said in found.items():
            print(f"{word} {path}: {'; '.join(said)}")
    print(f"by itself {len(walk.noise)}: {' '.join(sorted(walk.noise))}")
    print(
        f"walk: seed {SEED}, {len(everything)} settings, {len(set(tried))} tried, {len(walk.changed)} changed and restored,"
        f" {len(walk.refused)} refused, {len(walk.holes)} holes, {time.time() - began:.0f} s"
    )
    figures = {
        "settings": len(everything), "tried": len(set(tried)), "changed": len(walk.changed), "refused": len(walk.refused),
        "holes": len(walk.holes), "left": len(left) - len(tried), "last": tried[-1] if tried else "",
    }
    with open(f"{os.environ['OUT']}/walk.json", "w") as file:
        json.dump(figures, file)
    return min(len(walk.holes), 1)


sys.exit(main())
