use super::*;
use std::fs;
use whylate_testing::says;

const ENTRIES: &str = "boot/loader/entries";
const EVERY_DAY: &str = "# Boot Loader Specification type#1 entry\ntitle      Debian GNU/Linux 12\nversion    6.1.0-28-amd64\n\
    machine-id 4f2a\nsort-key   debian\noptions    root=UUID=0b1c ro quiet\nlinux      /debian/6.1.0-28-amd64/linux\n\
    initrd     /debian/6.1.0-28-amd64/initrd.img\n";

/// Says what `bootctl` was asked.
const TOOL: &str = "#!/bin/sh\necho \"$@\" >>\"$0.said\"\n";

struct Fake {
    _folder: tempfile::TempDir,
    root: HostRoot,
    loader: SystemdBoot,
}

fn fake(settings: &str, every_day: &str) -> Fake {
    let folder = tempfile::tempdir().unwrap();
    let root = HostRoot::at(folder.path());
    let old = EVERY_DAY.replace("6.1.0-28", "6.1.0-27");
    for (path, text) in [
        (&format!("{ENTRIES}/debian-6.1.0-27-amd64.conf")[..], &old[..]),
        (&format!("{ENTRIES}/debian-6.1.0-28-amd64+3.conf"), every_day),
        ("boot/loader/loader.conf", settings),
        (INFO, "x"),
        ("bootctl", TOOL),
    ] {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let selected = "debian-6.1.0-28-amd64.conf\0".encode_utf16().flat_map(u16::to_le_bytes);
    fs::write(root.path(SELECTED), [7, 0, 0, 0].into_iter().chain(selected).collect::<Vec<u8>>()).unwrap();
    let tool = root.path("/bootctl");
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let loader = SystemdBoot { root: root.clone(), tool };
    Fake { _folder: folder, root, loader }
}

fn kernels() -> BTreeSet<String> {
    ["6.1.0-28-amd64".to_owned()].into()
}

#[test]
fn an_entry_is_that_of_every_day_with_more_options_and_goes_again() {
    let Fake { root, loader, _folder } = fake("timeout 3\n", EVERY_DAY);
    assert!(is_there(&root));
    assert_eq!(loader.selected().as_deref(), Some("debian-6.1.0-28-amd64.conf"));
    loader.install(&kernels()).unwrap();
    let (words, kernel) = (vec!["isolcpus=1".to_owned()], "6.1.0-28-amd64".to_owned());
    let asked = Asked { step: 0, words, kernel, from_boot: "b".to_owned(), at_s: 0, told: false };
    loader.once(&asked).unwrap();
    let ours = root.path(&format!("/{ENTRIES}/whylate-campaign.conf"));
    let expected = "# Made by `whylate fix`\ntitle whylate: campaign, Linux 6.1.0-28-amd64\n\
        linux      /debian/6.1.0-28-amd64/linux\ninitrd     /debian/6.1.0-28-amd64/initrd.img\n\
        options root=UUID=0b1c ro quiet isolcpus=1 whylate.boot=0\n";
    assert_eq!(fs::read_to_string(&ours).unwrap(), expected);
    listed_by_bootctl(&root);
    // Once more: the entry is made from the default one, not from ours.
    loader.once(&Asked { step: 1, words: Vec::new(), ..asked }).unwrap();
    let text = fs::read_to_string(&ours).unwrap();
    assert!(says("options-root-uuid-b1c", &text), "{text}");
    loader.remove().unwrap();
    assert!(!ours.exists());
    let said = fs::read_to_string(root.path("/bootctl.said")).unwrap();
    let once = "set-oneshot whylate-campaign.conf\n";
    assert_eq!(said, format!("{once}{once}set-oneshot \n"));
    loader.remove().unwrap();
}

/// The real `bootctl`, where it is installed and reads entries of a folder.
fn listed_by_bootctl(root: &HostRoot) {
    let list = Command::new("bootctl")
        .arg("--esp-path")
        .arg(root.path("/boot"))
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
fn a_default_that_is_not_named_is_refused_where_our_entry_could_become_it() {
    let unsorted = EVERY_DAY.replace("sort-key   debian\n", "");
    for (settings, entry, is_fine) in [
        ("timeout 3\n", EVERY_DAY, true),
        ("timeout 3\n", &unsorted, false),
        ("default debian-*\n", &unsorted, true),
        ("default *\n", &unsorted, false),
        ("default @saved\n", EVERY_DAY, false),
    ] {
        let found = fake(settings, entry).loader.install(&kernels());
        assert_eq!(found.is_ok(), is_fine, "{settings} {found:?}");
    }
    let Fake { root, loader, _folder } = fake("default @saved\n", &unsorted);
    fs::write(root.path(DEFAULT), "x").unwrap();
    loader.install(&kernels()).unwrap();
    let error = loader.install(&["6.12.9".to_owned()].into()).unwrap_err().to_string();
    assert!(error.contains("boots Linux 6.12.9"), "{error}");
}
