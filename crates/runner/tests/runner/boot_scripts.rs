//! The scripts of packaging/boot on trees of files, and what `whylate fix` makes of what they say.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use whylate_host::HostRoot;
use whylate_runner::campaign::{LoaderName, ways};

const PLAIN: &str = "6.1.0-28-amd64";
const REAL_TIME: &str = "6.1.0-28-rt-amd64";
const APPENDED: &str = "isolcpus=1 nohz_full=1 whylate.boot=3";

/// A machine of files, with programs of its own in `bin`.
struct Tree {
    folder: tempfile::TempDir,
    script: &'static str,
}

impl Tree {
    fn new(script: &'static str, files: &[(&str, &str)]) -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap(), script };
        fs::create_dir(tree.path("bin")).unwrap();
        files.iter().for_each(|(path, text)| tree.write(path, text.as_bytes()));
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A program, written by another process: a child that another test is just starting could hold it open for
    /// writing.
    fn program(&self, name: &str, text: &str) {
        let write = ["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#];
        let path = self.path("bin").join(name);
        assert!(Command::new("sh").args(write).arg(path).arg(text).status().unwrap().success());
    }

    /// A program that notes how it was called.
    fn noting(&self, name: &str) {
        self.program(name, "#!/bin/sh\necho \"${0##*/} $*\" >>\"${0%/*}/said\"\n");
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("bin/said")).unwrap_or_default()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn run(&self, what: &str, environment: &[(&str, &str)]) -> Result<(), String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/boot").join(self.script);
        let mut path = OsString::from(self.path("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .arg(script)
            .arg(what)
            .envs(environment.iter().copied())
            .env("WHYLATE_HOST_ROOT", self.folder.path())
            .env("PATH", path)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn check(&self, kernels: &str) -> Result<(), String> {
        self.run("check", &[("WHYLATE_BOOT_KERNELS", kernels)])
    }

    fn once(&self, kernel: &str, appended: &str) {
        self.run("once", &[("WHYLATE_BOOT_KERNEL", kernel), ("WHYLATE_BOOT_APPEND", appended)]).unwrap();
    }

    fn forget(&self) {
        self.run("forget", &[]).unwrap();
    }

    /// Every file but the programs, with its text.
    fn files(&self) -> BTreeSet<(PathBuf, Vec<u8>)> {
        let (mut found, mut open) = (BTreeSet::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true if path == self.path("bin") => {}
                    true => open.push(path),
                    false => _ = found.insert((path.clone(), fs::read(path).unwrap())),
                }
            }
        }
        found
    }
}

/// As Debian's grub-mkconfig makes it, without what does not matter here.
const GRUB_CONFIGURATION: &str = r#"
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="0"
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-ab' {
	savedefault
	insmod gzio
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	search --no-floppy --fs-uuid --set=root 0b1c
	echo	'Loading Linux 6.1.0-28-amd64 ...'
	linux	/boot/vmlinuz-6.1.0-28-amd64 root=UUID=0b1c ro  quiet
	initrd	/boot/initrd.img-6.1.0-28-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-ab' {
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-28-rt-amd64 (recovery mode)' --class debian $menuentry_id_option 'r' {
		linux	/boot/vmlinuz-6.1.0-28-rt-amd64 root=UUID=0b1c ro single
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-28-rt-amd64' --class debian $menuentry_id_option 'g' {
		linux	/boot/vmlinuz-6.1.0-28-rt-amd64 root=UUID=0b1c ro  quiet
		initrd	/boot/initrd.img-6.1.0-28-rt-amd64
	}
}
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
elif [ -z "${config_directory}" -a -f  $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
"#;

const OWN: &str = "menuentry 'memtest' {\n\tlinux16 /boot/memtest86+.bin\n}\n";
const DISK: &str = "/dev/sda1 / ext4 rw 0 0\n/dev/sda2 /boot ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n";

/// Edits an environment block like GRUB's own tool, if that is not installed.
const EDITOR: &str = r#"#!/bin/sh
block=$1; what=$2; shift 2
for word; do
    name=${word%%=*}
    { grep -v "^$name=\|^#" "$block"; [ "$what" = unset ] || echo "$word"; } >"$block.new"
    { echo '# GRUB Environment Block'; cat "$block.new"; } >"$block"; rm "$block.new"
done
"#;

fn is_installed(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}

fn grub(mounts: &str) -> Tree {
    let files = [
        ("boot/grub/grub.cfg", GRUB_CONFIGURATION),
        ("boot/grub/custom.cfg", OWN),
        ("boot/grub/grubenv", "# GRUB Environment Block\n"),
        ("proc/mounts", mounts),
    ];
    let tree = Tree::new("grub.sh", &files);
    let block = tree.path("boot/grub/grubenv");
    match is_installed("grub-editenv") {
        true => {
            assert!(Command::new("grub-editenv").arg(&block).arg("create").status().unwrap().success());
            assert!(
                Command::new("grub-editenv")
                    .arg(&block)
                    .args(["set", "saved_entry=0"])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        false => {
            tree.program("grub-editenv", EDITOR);
            tree.write("boot/grub/grubenv", b"# GRUB Environment Block\nsaved_entry=0\n");
        }
    }
    tree
}

#[test]
fn an_entry_of_grub_is_the_default_one_with_more_words_and_goes_again() {
    let tree = grub(DISK);
    let before = tree.files();
    tree.check(&format!("{PLAIN} {REAL_TIME}")).unwrap();
    assert_eq!(tree.files(), before, "a check writes nothing");
    for kernel in [PLAIN, REAL_TIME] {
        tree.once(kernel, APPENDED);
        let text = tree.read("boot/grub/custom.cfg");
        assert!(text.starts_with(OWN) && text.contains("--id 'whylate-campaign'"), "{text}");
        let linux: Vec<&str> = text.lines().filter(|line| line.contains("vmlinuz")).map(str::trim).collect();
        assert_eq!(linux, [format!("linux\t/boot/vmlinuz-{kernel} root=UUID=0b1c ro  quiet {APPENDED}")]);
        assert!(!text.contains("savedefault") && text.contains(&format!("initrd.img-{kernel}")), "{text}");
        assert_eq!(text.contains("search --no-floppy"), kernel == PLAIN, "{text}");
        assert!(tree.read("boot/grub/grubenv").lines().any(|line| line == "next_entry=whylate-campaign"));
        if is_installed("grub-script-check") {
            let check = Command::new("grub-script-check").arg(tree.path("boot/grub/custom.cfg")).status();
            assert!(check.unwrap().success(), "{text}");
        }
    }
    for _ in 0..2 {
        tree.forget();
        assert_eq!(tree.files(), before);
    }
    fs::remove_file(tree.path("boot/grub/custom.cfg")).unwrap();
    tree.once(PLAIN, APPENDED);
    tree.forget();
    assert!(!tree.path("boot/grub/custom.cfg").exists());
}

#[test]
fn the_next_entry_of_another_program_stays() {
    let tree = grub(DISK);
    tree.write("boot/grub/grubenv", b"# GRUB Environment Block\nnext_entry=memtest\n");
    tree.forget();
    assert!(tree.read("boot/grub/grubenv").contains("next_entry=memtest"));
}

#[test]
fn a_grub_that_could_boot_an_entry_for_ever_or_not_at_all_is_refused() {
    for (mounts, kernel, expected) in [
        ("/dev/sda1 / btrfs rw 0 0\n", PLAIN, "cannot clear next_entry"),
        ("/dev/mapper/vg-root / ext4 rw 0 0\n", PLAIN, "cannot clear next_entry"),
        ("tmpfs /run tmpfs rw 0 0\n", PLAIN, "does not show"),
        (DISK, "6.12.9", "boots Linux 6.12.9"),
    ] {
        let tree = grub(mounts);
        let error = tree.check(kernel).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let tree = grub(DISK);
    for missing in ["custom.cfg", "next_entry"] {
        tree.write("boot/grub/grub.cfg", GRUB_CONFIGURATION.replace(missing, "other").as_bytes());
        let error = tree.check(PLAIN).unwrap_err();
        assert!(error.contains(missing), "{error}");
    }
}

const ENTRIES: &str = "boot/loader/entries";
const EVERY_DAY: &str = "# Boot Loader Specification type#1 entry\ntitle      Debian GNU/Linux 12\nversion    6.1.0-28-amd64\n\
    machine-id 4f2a\nsort-key   debian\noptions    root=UUID=0b1c ro quiet\nlinux      /debian/6.1.0-28-amd64/linux\n\
    initrd     /debian/6.1.0-28-amd64/initrd.img\n";
const VARIABLES: &str = "sys/firmware/efi/efivars";
const VENDOR: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

fn systemd_boot(settings: &str, every_day: &str) -> Tree {
    let old = EVERY_DAY.replace("6.1.0-28", "6.1.0-27");
    let files = [
        (&format!("{ENTRIES}/debian-6.1.0-27-amd64.conf")[..], &old[..]),
        (&format!("{ENTRIES}/debian-6.1.0-28-amd64+3.conf"), every_day),
        ("boot/loader/loader.conf", settings),
        (&format!("{VARIABLES}/LoaderInfo-{VENDOR}"), "x"),
    ];
    let tree = Tree::new("systemd-boot.sh", &files);
    let selected = "debian-6.1.0-28-amd64.conf\0".encode_utf16().flat_map(u16::to_le_bytes);
    let selected: Vec<u8> = [7, 0, 0, 0].into_iter().chain(selected).collect();
    tree.write(&format!("{VARIABLES}/LoaderEntrySelected-{VENDOR}"), &selected);
    tree.noting("bootctl");
    tree
}

#[test]
fn an_entry_of_systemd_boot_is_the_booted_one_with_more_options_and_goes_again() {
    let tree = systemd_boot("timeout 3\n", EVERY_DAY);
    // The same kernel without the everyday option, before it in the list.
    let other = EVERY_DAY.replace(" quiet", "");
    tree.write(&format!("{ENTRIES}/a-6.1.0-28-amd64.conf"), other.as_bytes());
    let before = tree.files();
    tree.check(PLAIN).unwrap();
    assert_eq!(tree.files(), before, "a check writes nothing");
    tree.once(PLAIN, "isolcpus=1 whylate.boot=0");
    let ours = format!("{ENTRIES}/whylate-campaign.conf");
    let expected = "# Made by `whylate fix`\ntitle whylate: campaign, Linux 6.1.0-28-amd64\n\
        linux      /debian/6.1.0-28-amd64/linux\ninitrd     /debian/6.1.0-28-amd64/initrd.img\n\
        options root=UUID=0b1c ro quiet isolcpus=1 whylate.boot=0\n";
    assert_eq!(tree.read(&ours), expected);
    listed_by_bootctl(&tree);
    // Once more: the entry is made from the default one, not from ours.
    tree.once(PLAIN, "whylate.boot=1");
    assert!(tree.read(&ours).ends_with("options root=UUID=0b1c ro quiet whylate.boot=1\n"));
    for _ in 0..2 {
        tree.forget();
        assert_eq!(tree.files(), before);
    }
    let once = "bootctl set-oneshot whylate-campaign.conf\n";
    assert_eq!(tree.said(), format!("{once}{once}bootctl set-oneshot \n"));
}

/// The real `bootctl`, where it is installed and reads entries of a folder.
fn listed_by_bootctl(tree: &Tree) {
    let list = Command::new("bootctl")
        .arg("--esp-path")
        .arg(tree.path("boot"))
        .args(["list", "--no-pager"])
        .env("SYSTEMD_RELAX_ESP_CHECKS", "1")
        .output();
    let Ok(list) = list else { return };
    let text = String::from_utf8_lossy(&list.stdout);
    if text.contains("debian-6.1.0-27-amd64.conf") {
        assert!(text.contains("isolcpus=1 whylate.boot=0"), "{text}");
    }
}

#[test]
fn a_default_of_systemd_boot_that_is_not_named_is_refused_where_our_entry_could_become_it() {
    let unsorted = EVERY_DAY.replace("sort-key   debian\n", "");
    for (settings, entry, is_fine) in [
        ("timeout 3\n", EVERY_DAY, true),
        ("timeout 3\n", &unsorted, false),
        ("default debian-*\n", &unsorted, true),
        ("default *\n", &unsorted, false),
        ("default @saved\n", EVERY_DAY, false),
    ] {
        let found = systemd_boot(settings, entry).check(PLAIN);
        assert_eq!(found.is_ok(), is_fine, "{settings} {found:?}");
    }
    let tree = systemd_boot("default @saved\n", &unsorted);
    tree.write(&format!("{VARIABLES}/LoaderEntryDefault-{VENDOR}"), b"x");
    tree.check(PLAIN).unwrap();
    assert!(tree.check("6.12.9").unwrap_err().contains("boots Linux 6.12.9"));
    fs::remove_file(tree.path(&format!("{VARIABLES}/LoaderInfo-{VENDOR}"))).unwrap();
    assert!(tree.check(PLAIN).unwrap_err().contains("LoaderInfo"));
}

#[test]
fn a_raspberry_pi_tries_a_command_line_once() {
    let files = [
        ("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0"),
        ("proc/sys/kernel/osrelease", "6.12.25+rpt-rpi-2712\n"),
        ("boot/firmware/config.txt", "arm_64bit=1\n[pi5]\nkernel=kernel_2712.img\n"),
        ("boot/firmware/cmdline.txt", "root=PARTUUID=1-02 rootwait\n"),
        ("boot/firmware/vmlinuz-6.12.30-rt", "k"),
        ("boot/firmware/initrd.img-6.12.30-rt", "i"),
    ];
    let tree = Tree::new("raspberry-pi.sh", &files);
    tree.noting("systemctl");
    let before = tree.files();
    tree.check("6.12.25+rpt-rpi-2712 6.12.30-rt").unwrap();
    assert_eq!(tree.files(), before, "a check writes nothing");
    assert!(tree.check("6.1.9").unwrap_err().contains("vmlinuz-6.1.9"));
    tree.once("6.12.25+rpt-rpi-2712", APPENDED);
    assert_eq!(
        tree.read("boot/firmware/whylate-cmdline.txt"),
        format!("root=PARTUUID=1-02 rootwait {APPENDED}\n")
    );
    let text = tree.read("boot/firmware/tryboot.txt");
    assert!(text.ends_with("kernel=kernel_2712.img\n[all]\ncmdline=whylate-cmdline.txt\n"), "{text}");
    tree.run("reboot", &[]).unwrap();
    tree.once("6.12.30-rt", "whylate.boot=4");
    let text = tree.read("boot/firmware/tryboot.txt");
    let kernel = "cmdline=whylate-cmdline.txt\nkernel=vmlinuz-6.12.30-rt\ninitramfs initrd.img-6.12.30-rt followkernel\n";
    assert!(text.ends_with(kernel), "{text}");
    for _ in 0..2 {
        tree.forget();
        assert_eq!(tree.files(), before);
    }
    tree.run("reboot", &[]).unwrap();
    assert_eq!(tree.said(), "systemctl reboot --reboot-argument=0 tryboot\nsystemctl reboot\n");
    tree.write("boot/firmware/tryboot.txt", b"arm_64bit=1\n");
    assert!(tree.check("6.12.30-rt").unwrap_err().contains("tryboot.txt"));
    tree.forget();
    assert!(tree.path("boot/firmware/tryboot.txt").exists(), "it is not ours");
}

#[test]
fn kexec_loads_the_default_command_line_with_more_words() {
    let files = [
        ("proc/cmdline", "root=/dev/vda ro\n"),
        ("proc/sys/kernel/kexec_load_disabled", "0\n"),
        ("sys/kernel/kexec_loaded", "0\n"),
        ("boot/vmlinuz-6.1.0", "k"),
        ("boot/initrd.img-6.1.0", "i"),
    ];
    let tree = Tree::new("kexec.sh", &files);
    ["kexec", "systemctl"].into_iter().for_each(|name| tree.noting(name));
    tree.check("6.1.0").unwrap();
    assert!(tree.check("6.12.9").unwrap_err().contains("vmlinuz-6.12.9"));
    tree.once("6.1.0", APPENDED);
    // A boot of the campaign: the default command line is still that of before.
    tree.write("proc/cmdline", format!("root=/dev/vda ro {APPENDED}\n").as_bytes());
    tree.once("6.1.0", "whylate.boot=4");
    tree.write("sys/kernel/kexec_loaded", b"1\n");
    tree.run("reboot", &[]).unwrap();
    tree.forget();
    tree.write("sys/kernel/kexec_loaded", b"0\n");
    tree.forget();
    tree.run("reboot", &[]).unwrap();
    let root = tree.folder.path().display();
    let load = |words: &str| {
        format!(
            "kexec --load {root}/boot/vmlinuz-6.1.0 --command-line=root=/dev/vda ro {words} --initrd={root}/boot/initrd.img-6.1.0\n"
        )
    };
    let expected = [
        load(APPENDED),
        load("whylate.boot=4"),
        "systemctl kexec\nkexec --unload\nsystemctl reboot\n".to_owned(),
    ];
    assert_eq!(tree.said(), expected.concat());
    tree.write("proc/sys/kernel/kexec_load_disabled", b"1\n");
    assert!(tree.check("6.1.0").unwrap_err().contains("kexec_load_disabled"));
}

#[test]
fn a_machine_says_by_its_files_what_boots_it_and_refusals_name_the_loader() {
    let kernels: BTreeSet<String> = [PLAIN.to_owned()].into();
    for (tree, name, refused) in [
        (grub("/dev/sda1 / btrfs rw 0 0\n"), LoaderName::Grub, "grub: "),
        (systemd_boot("default @saved\n", EVERY_DAY), LoaderName::SystemdBoot, "systemd-boot: "),
    ] {
        let root = HostRoot::at(tree.folder.path());
        assert_eq!(LoaderName::found(&root), Some(name.clone()));
        assert_eq!(name.to_string().parse(), Ok(name.clone()));
        let error = ways(&name, &root).check(&kernels).unwrap_err().to_string();
        assert!(error.starts_with(refused), "{error}");
    }
    let tree = grub(DISK);
    let root = HostRoot::at(tree.folder.path());
    ways(&LoaderName::Grub, &root).check(&kernels).unwrap();
    assert_eq!(LoaderName::found(&HostRoot::at(tree.path("nowhere"))), None);
    assert!("lilo".parse::<LoaderName>().is_err());
}

#[test]
fn a_script_of_the_user_may_have_no_check_and_its_reason_is_reported() {
    let tree = Tree::new("", &[]);
    let (kernels, root) = ([PLAIN.to_owned()].into(), HostRoot::at(tree.folder.path()));
    let path = tree.path("bin/mine").display().to_string();
    let name: LoaderName = path.parse().unwrap();
    for (text, refused) in [
        ("exit 64", None),
        ("exit 0", None),
        ("[ \"$WHYLATE_BOOT_KERNELS\" = 6.1.0-28-amd64 ]", None),
        ("echo no power switch >&2; exit 1", Some("no power switch")),
    ] {
        tree.program("mine", &format!("#!/bin/sh\n{text}\n"));
        let found = ways(&name, &root).check(&kernels).map_err(|error| error.to_string());
        match refused {
            None => assert_eq!(found, Ok(()), "{text}"),
            Some(words) => assert_eq!(found, Err(format!("{path}: {words}")), "{text}"),
        }
    }
}
