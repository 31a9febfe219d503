//! The packages are installed, used and removed, and leave nothing behind. `WHYLATE_LAB_PACKAGES` names the folder that
//! `cargo xtask package` filled; without it there is nothing to test.

use std::path::{Path, PathBuf};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    if folder().is_none() {
        return Vec::new();
    }
    let kernels = suite::kernels_unless_brief(&[Kernel::RealTime, Kernel::RealTimeNew]);
    let of_kernel = |kernel| {
        let test = |name, body| LabTest::new(name, Machine::new(Profile::Threads, kernel), body);
        [test("packages_of_debian_come_and_go", debian), test("packages_of_rpm_come_and_go", rpm)]
    };
    kernels.into_iter().flat_map(of_kernel).collect()
}

fn folder() -> Option<PathBuf> {
    std::env::var_os("WHYLATE_LAB_PACKAGES").map(PathBuf::from)
}

/// What each script begins with: the files of the system (those that `$only` selects) but for what package managers and
/// the kernel keep, and what is asked of an installed program. The guest's own copy of the program is out of the way until
/// the script ends, for the tests after it in this guest need it.
const BEGIN: &str = r#"
fail() { echo "$*" >&2; exit 9; }
files() {
    find / -xdev \( -path /var/lib/dpkg -o -path /root/.rpmdb -o -path /var/log -o -path /tmp \) -prune -o $only -print | sort
}
mkdir /tmp/aside
mv /usr/local/bin/whylate /tmp/aside/
# It would leave out man pages and documentation.
mv /etc/dpkg/dpkg.cfg.d/99mmdebstrap /tmp/aside/
trap 'mv /tmp/aside/whylate /usr/local/bin/; mv /tmp/aside/99mmdebstrap /etc/dpkg/dpkg.cfg.d/; rmdir /tmp/aside' EXIT
cd /lab/packages || fail "no packages"
used() {
    test "$(command -v whylate)" = /usr/bin/whylate || fail "not installed"
    whylate --version || fail "does not start"
    whylate measure timer --cpus 1 --duration 300ms --json >/tmp/result || fail "does not measure"
    python3 -c 'import json; assert json.load(open("/tmp/result"))["cpus"]' || fail "no result"
    # What is not here is said in a line, by the helper that was installed.
    whylate-gpu list >/tmp/list 2>&1
    test -s /tmp/list || fail "the helper says nothing"
    for file in /usr/share/man/man1/whylate-run.1.gz /usr/share/bash-completion/completions/whylate \
        /usr/lib/systemd/system/whylate-run@.service /usr/share/doc/whylate/README.md; do
        test -s $file || fail "$file is missing"
    done
}
# Whether the files are those from before.
gone() {
    files >/tmp/after
    diff /tmp/before /tmp/after || fail "not the files from before"
}
files >/tmp/before
"#;

const DEBIAN: &str = r#"
dpkg -i whylate_*_amd64.deb || fail "not installed"
dpkg -i whylate-gpu_*_amd64.deb || fail "the helper is not installed"
dpkg -V whylate whylate-gpu || fail "other files than in the packages"
used
# A second time, over itself.
dpkg -i whylate_*_amd64.deb || fail "not installed again"
used
dpkg -P whylate-gpu whylate || fail "not removed"
gone
# That of the other machine cannot run here; it comes and goes all the same. 183 in the header of a program is arm64.
dpkg --add-architecture arm64
dpkg -i whylate_*_arm64.deb || fail "the one of arm64 is not installed"
dpkg -V whylate:arm64 || fail "other files than in the package of arm64"
test "$(od -An -tu1 -j18 -N1 /usr/bin/whylate | tr -d ' ')" = 183 || fail "no program of arm64"
dpkg -P whylate:arm64 || fail "the one of arm64 is not removed"
dpkg --remove-architecture arm64
gone
"#;

/// The guest is Debian: what its own packages give, rpm does not know, nor the folders for completions, which belong to
/// other packages where rpm is at home.
const RPM: &str = r#"
rpm -i --nodeps whylate-0*.x86_64.rpm whylate-gpu-0*.x86_64.rpm || fail "not installed"
rpm -V --nodeps whylate whylate-gpu || fail "other files than in the packages"
used
rpm -e whylate-gpu whylate || fail "not removed"
gone
"#;

fn debian(guest: &mut Guest) -> Result<(), LabError> {
    come_and_go(guest, ".deb", "only=", DEBIAN)
}

fn rpm(guest: &mut Guest) -> Result<(), LabError> {
    come_and_go(guest, ".x86_64.rpm", "only='! -type d'", RPM)
}

/// Gives the guest the packages whose names have that ending, and runs the script, which inspects these files.
fn come_and_go(guest: &mut Guest, ending: &str, only: &str, script: &str) -> Result<(), LabError> {
    let to = guest.share().join("packages");
    std::fs::create_dir_all(&to).unwrap();
    let packages = packages(ending);
    assert!(packages.len() >= 2, "{packages:?}");
    for package in packages {
        std::fs::copy(&package, to.join(package.file_name().unwrap())).unwrap();
    }
    guest.ok(&format!("{only}\n{BEGIN}{script}")).map(drop)
}

fn packages(ending: &str) -> Vec<PathBuf> {
    let folder = folder().unwrap_or_default();
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let is_wanted =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending));
    let all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_wanted).collect();
    let is_module = |path: &Path| path.to_string_lossy().contains("memtype");
    all.into_iter().filter(|path| !is_module(path)).collect()
}
