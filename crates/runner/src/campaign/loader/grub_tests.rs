use super::*;
use std::fs;
use std::path::Path;

/// As Debian's grub-mkconfig makes it, without what is of no matter here.
const CONFIGURATION: &str = r#"
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
const PLAIN: &str = "6.1.0-28-amd64";
const REAL_TIME: &str = "6.1.0-28-rt-amd64";

/// What edits an environment block as GRUB's own tool does, where that is not installed.
const EDITOR: &str = r#"#!/bin/sh
block=$1; what=$2; shift 2
for word; do
    name=${word%%=*}
    { grep -v "^$name=\|^#" "$block"; [ "$what" = unset ] || echo "$word"; } >"$block.new"
    { echo '# GRUB Environment Block'; cat "$block.new"; } >"$block"; rm "$block.new"
done
"#;

struct Fake {
    _folder: tempfile::TempDir,
    root: HostRoot,
    grub: Grub,
}

/// A folder with GRUB's real tools, such as `dpkg-deb -x grub-common.deb FOLDER` makes it; else those of the path.
fn tool(name: &str) -> PathBuf {
    std::env::var_os("WHYLATE_TEST_GRUB")
        .map_or_else(|| name.into(), |folder| Path::new(&folder).join("usr/bin").join(name))
}

fn is_installed(name: &str) -> bool {
    Command::new(tool(name)).arg("--version").output().is_ok()
}

fn fake(mounts: &str) -> Fake {
    let folder = tempfile::tempdir().unwrap();
    let root = HostRoot::at(folder.path());
    for (path, text) in [
        ("boot/grub/grub.cfg", CONFIGURATION),
        ("boot/grub/custom.cfg", OWN),
        ("proc/mounts", mounts),
        ("tool", EDITOR),
    ] {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut grub = Grub::new(root.clone());
    let block = root.path("/boot/grub/grubenv");
    if is_installed("grub-editenv") {
        assert!(Command::new(tool("grub-editenv")).arg(&block).arg("create").status().unwrap().success());
        grub.tool = Some(tool("grub-editenv"));
    } else {
        let path = root.path("/tool");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(&block, "# GRUB Environment Block\n").unwrap();
        grub.tool = Some(path);
    }
    grub.edit(&["set", "saved_entry=0"]).unwrap();
    Fake { _folder: folder, root, grub }
}

const DISK: &str = "/dev/sda1 / ext4 rw 0 0\n/dev/sda2 /boot ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n";

fn asked(kernel: &str) -> Asked {
    let words = vec!["isolcpus=1".to_owned(), "nohz_full=1".to_owned()];
    Asked { step: 3, words, kernel: kernel.to_owned(), from_boot: "b".to_owned(), at_s: 0, told: false }
}

#[test]
fn an_entry_is_that_of_every_day_with_more_words_and_goes_again() {
    let Fake { root, grub, _folder } = fake(DISK);
    let read = |path: &str| fs::read_to_string(root.path(path)).unwrap();
    let kernels: BTreeSet<String> = [PLAIN, REAL_TIME].map(str::to_owned).into();
    grub.install(&kernels).unwrap();
    let first = read("/boot/grub/custom.cfg");
    grub.install(&kernels).unwrap();
    let text = read("/boot/grub/custom.cfg");
    assert_eq!(text, first, "written again after a power cut");
    assert!(text.starts_with(OWN), "{text}");
    let linux: Vec<&str> = text.lines().filter(|line| line.contains("vmlinuz")).map(str::trim).collect();
    assert_eq!(
        linux,
        [
            "linux\t/boot/vmlinuz-6.1.0-28-amd64 root=UUID=0b1c ro  quiet ${whylate_cmdline}",
            "linux\t/boot/vmlinuz-6.1.0-28-rt-amd64 root=UUID=0b1c ro  quiet ${whylate_cmdline}"
        ]
    );
    assert!(!text.contains("savedefault") && text.contains("search --no-floppy"), "{text}");
    if is_installed("grub-script-check") {
        let check =
            |path: PathBuf| Command::new(tool("grub-script-check")).arg(path).status().unwrap().success();
        assert!(check(root.path("/boot/grub/custom.cfg")) && check(root.path("/boot/grub/grub.cfg")));
    }
    grub.once(&asked(REAL_TIME)).unwrap();
    let block = read("/boot/grub/grubenv");
    let lines: Vec<&str> = block.lines().collect();
    assert!(lines.contains(&"whylate_cmdline=isolcpus=1 nohz_full=1 whylate.boot=3"), "{block}");
    assert!(lines.contains(&"next_entry=whylate-campaign-6.1.0-28-rt-amd64"), "{block}");
    assert!(text.contains("--id 'whylate-campaign-6.1.0-28-rt-amd64'"), "{text}");
    grub.remove().unwrap();
    let block = read("/boot/grub/grubenv");
    assert!(!block.contains("whylate") && block.contains("saved_entry=0"), "{block}");
    assert_eq!(read("/boot/grub/custom.cfg"), OWN);
    assert_eq!(read("/boot/grub/grub.cfg"), CONFIGURATION);
    grub.remove().unwrap();
}

#[test]
fn the_next_entry_of_somebody_else_stays() {
    let Fake { root, grub, _folder } = fake(DISK);
    grub.edit(&["set", "next_entry=memtest"]).unwrap();
    grub.forget().unwrap();
    assert!(fs::read_to_string(root.path("/boot/grub/grubenv")).unwrap().contains("next_entry=memtest"));
}

#[test]
fn what_could_boot_for_ever_or_not_at_all_is_refused() {
    let plain: BTreeSet<String> = [PLAIN.to_owned()].into();
    let refused = |mounts: &str, kernels: &BTreeSet<String>, expected: &str| {
        let Fake { root, grub, _folder } = fake(mounts);
        let error = grub.install(kernels).unwrap_err().to_string();
        assert!(error.starts_with("grub: ") && error.contains(expected), "{error}");
        assert_eq!(fs::read_to_string(root.path("/boot/grub/custom.cfg")).unwrap(), OWN);
    };
    refused("/dev/sda1 / btrfs rw 0 0\n", &plain, "cannot record that an entry was booted once");
    refused("/dev/mapper/vg-root / ext4 rw 0 0\n", &plain, "cannot record");
    refused(DISK, &["6.12.9".to_owned()].into(), "no menu entry of /boot/grub boots Linux 6.12.9");
    let Fake { root, grub, _folder } = fake(DISK);
    fs::write(root.path("/boot/grub/grub.cfg"), CONFIGURATION.replace("custom.cfg", "mine.cfg")).unwrap();
    let error = grub.install(&plain).unwrap_err().to_string();
    assert!(error.contains("does not read custom.cfg"), "{error}");
}
