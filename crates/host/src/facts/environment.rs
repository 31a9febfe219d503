//! Where the kernel and this process run: hypervisor, container, control groups.
//!
//! A hypervisor that hides itself, and a container that leaves no trace, are not found.

use super::FactReader;
use crate::cgroup::{group_of, groups};
use crate::cpuinfo::CpuInfo;
use whylate_core::facts::EnvironmentFacts;

/// Inode numbers of the initial namespaces (`PROC_*_INIT_INO` in include/linux/proc_ns.h).
const INITIAL_NAMESPACES: [(&str, &str); 2] =
    [("pid", "pid:[4026531836]"), ("cgroup", "cgroup:[4026531835]")];

pub(super) fn environment(reader: &FactReader, info: &CpuInfo) -> EnvironmentFacts {
    let cgroups = Cgroups::read(reader);
    EnvironmentFacts {
        hypervisor: hypervisor(reader, info),
        container: container(reader, &cgroups),
        cgroup_version: cgroups.version(reader),
    }
}

/// On x86 a processor flag says that there is a hypervisor, and other files say which one. arm64 has no such flag, so
/// there only files count that no bare machine has.
fn hypervisor(reader: &FactReader, info: &CpuInfo) -> Option<String> {
    let name = named_hypervisor(reader);
    if info.vendor.is_some() {
        let present = info.has_flag("hypervisor") || reader.root.exists("/sys/hypervisor/type");
        return present.then(|| name.unwrap_or("unknown hypervisor").to_owned());
    }
    name.map(str::to_owned)
}

fn named_hypervisor(reader: &FactReader) -> Option<&'static str> {
    let text = |path: &str| reader.text(path).unwrap_or_default().to_lowercase();
    if text("/sys/hypervisor/type") == "xen" {
        return Some("xen");
    }
    // Clock sources that exist only under one hypervisor.
    let clocks = text("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    for (clock, name) in [("kvm-clock", "kvm"), ("hyperv_clocksource", "microsoft"), ("vmware", "vmware")] {
        if clocks.contains(clock) {
            return Some(name);
        }
    }
    let tree = text("/proc/device-tree/hypervisor/compatible");
    for (word, name) in [("kvm", "kvm"), ("xen", "xen")] {
        if tree.contains(word) {
            return Some(name);
        }
    }
    named_by_firmware(&text("/sys/class/dmi/id/sys_vendor"), &text("/sys/class/dmi/id/product_name"))
}

/// `vendor` and `product` of DMI, in lower case.
fn named_by_firmware(vendor: &str, product: &str) -> Option<&'static str> {
    const VENDORS: [(&str, &str); 7] = [
        ("vmware", "vmware"),
        ("innotek", "virtualbox"),
        ("xen", "xen"),
        ("parallels", "parallels"),
        ("bochs", "bochs"),
        ("bhyve", "bhyve"),
        ("qemu", "qemu"),
    ];
    const PRODUCTS: [(&str, &str); 6] = [
        ("kvm", "kvm"),
        ("google compute engine", "kvm"),
        ("openstack", "kvm"),
        ("virtualbox", "virtualbox"),
        ("vmware", "vmware"),
        ("apple virtual", "apple"),
    ];
    let by_product = PRODUCTS.iter().find(|(word, _)| product.contains(word));
    let by_vendor = VENDORS.iter().find(|(word, _)| vendor.starts_with(word));
    if vendor.starts_with("microsoft") && product == "virtual machine" {
        return Some("microsoft");
    }
    // Bare-metal instances have the same vendor; their product name ends in `.metal`.
    if vendor.starts_with("amazon ec2") && !product.ends_with(".metal") {
        return Some("amazon");
    }
    by_product.or(by_vendor).map(|(_, name)| *name)
}

fn container(reader: &FactReader, cgroups: &Cgroups) -> Option<String> {
    if reader.root.exists("/run/secrets/kubernetes.io") || cgroups.mention("kubepods") {
        return Some("kubernetes".to_owned());
    }
    let stated = reader.text("/run/systemd/container").or_else(|| {
        let variables = reader.raw("/proc/1/environ")?;
        variables.split('\0').find_map(|variable| variable.strip_prefix("container=")).map(str::to_owned)
    });
    if let Some(name) = stated.filter(|name| !name.is_empty()) {
        return Some(name);
    }
    for (word, name) in
        [("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"), ("containerd", "containerd")]
    {
        if cgroups.mention_group(word) {
            return Some(name.to_owned());
        }
    }
    // These files also exist on machines whose disk was made from a container image.
    if INITIAL_NAMESPACES.iter().all(|(name, link)| {
        reader.root.read_link(&format!("/proc/self/ns/{name}")).is_some_and(|target| target == *link)
    }) {
        return None;
    }
    let markers = [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")];
    markers.iter().find(|(path, _)| reader.root.exists(path)).map(|(_, name)| (*name).to_owned())
}

/// The text of /proc/self/cgroup: the control groups of this process.
pub(super) struct Cgroups(String);

/// Where the group of this process lies for one controller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Controller {
    /// 1 or 2.
    pub(super) version: u32,
    pub(super) folder: String,
    /// Whether it is the root group of the machine.
    pub(super) is_root_group: bool,
}

impl Cgroups {
    pub(super) fn read(reader: &FactReader) -> Self {
        Self(reader.raw("/proc/self/cgroup").unwrap_or_default())
    }

    fn mention(&self, word: &str) -> bool {
        groups(&self.0).any(|(_, path)| path.contains(word))
    }

    /// Whether a path has a group that is named by `word`, alone or before the container's own name: `/docker/…`,
    /// `/docker-….scope`, `/lxc.payload.…`; a service such as `docker.service` is none.
    fn mention_group(&self, word: &str) -> bool {
        let names = groups(&self.0).flat_map(|(_, path)| path.split('/'));
        names.filter_map(|group| group.strip_prefix(word)).any(|rest| {
            rest.is_empty() || rest.starts_with('-') || rest.starts_with(".payload") || rest.starts_with(':')
        })
    }

    /// The version that holds the cpuset controller, which decides where CPUs can be set apart.
    fn version(&self, reader: &FactReader) -> Option<u32> {
        groups(&self.0).next()?;
        let is_v1 = group_of(&self.0, Some("cpuset")).is_some();
        let only_v2 = groups(&self.0).all(|(controllers, _)| controllers.is_empty());
        Some(if !is_v1 && (only_v2 || v2_offers(reader, "cpuset")) { 2 } else { 1 })
    }

    /// The group of this process for one controller; `None` when no mount shows it.
    pub(super) fn controller(&self, reader: &FactReader, controller: &str) -> Option<Controller> {
        let mounts = reader.raw("/proc/self/mountinfo").unwrap_or_default();
        let (version, path) = match group_of(&self.0, Some(controller)) {
            Some(path) => (1, path),
            None => (2, group_of(&self.0, None)?),
        };
        let (mount_root, mount_point) =
            mounts.lines().find_map(|line| cgroup_mount(line, version, controller))?;
        // Without a namespace of its own, a container's mount begins at its own group, and the path repeats it.
        let below = path.strip_prefix(mount_root).unwrap_or(path);
        let below = below.trim_matches('/');
        let folder = if below.is_empty() { mount_point.to_owned() } else { format!("{mount_point}/{below}") };
        let namespace = reader.root.read_link("/proc/self/ns/cgroup");
        let initial = namespace.is_none_or(|link| link == INITIAL_NAMESPACES[1].1);
        Some(Controller { version, folder, is_root_group: path == "/" && initial })
    }
}

/// Whether cgroup v2 has the controller.
fn v2_offers(reader: &FactReader, controller: &str) -> bool {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|mount| {
        let offered = reader.text(&format!("{mount}/cgroup.controllers")).unwrap_or_default();
        offered.split_whitespace().any(|name| name == controller)
    })
}

/// `[root, mount point]` of a line of /proc/self/mountinfo when it mounts that controller (proc(5)).
fn cgroup_mount<'a>(line: &'a str, version: u32, controller: &str) -> Option<(&'a str, &'a str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split_whitespace().skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split_whitespace();
    let kind = file_system.next()?;
    let options = file_system.nth(1).unwrap_or_default();
    let wanted = match version {
        1 => kind == "cgroup" && options.split(',').any(|option| option == controller),
        _ => kind == "cgroup2",
    };
    wanted.then_some((root, point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRoot;
    use proptest::prelude::*;

    fn with_machine<T>(archive: &str, test: impl Fn(&FactReader) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        whylate_lab::archive::unpack(archive, folder.path()).unwrap();
        test(&FactReader { root: &HostRoot::at(folder.path()), warnings: Default::default() })
    }

    #[test]
    fn firmware_names() {
        assert_eq!(named_by_firmware("qemu", "standard pc"), Some("qemu"));
        assert_eq!(named_by_firmware("microsoft corporation", "virtual machine"), Some("microsoft"));
        assert_eq!(named_by_firmware("microsoft corporation", "surface pro"), None);
        assert_eq!(named_by_firmware("amazon ec2", "m7g.metal"), None);
        assert_eq!(named_by_firmware("amazon ec2", "m7g.large"), Some("amazon"));
        assert_eq!(named_by_firmware("lenovo", "thinkstation"), None);
    }

    #[test]
    fn container_evidence() {
        let cases = [
            ("== proc/self/cgroup := 0::/system.slice/docker.service", None),
            ("== proc/self/cgroup := 4:cpu:/docker/0123", Some("docker")),
            ("== proc/self/cgroup := 0::/system.slice/docker-0123.scope", Some("docker")),
            ("== proc/self/cgroup := 0::/kubepods.slice/kubepods-pod1.slice", Some("kubernetes")),
            ("== proc/self/cgroup := 0::/lxc.payload.web/init.scope", Some("lxc")),
            ("== proc/1/environ := A=1\\0container=systemd-nspawn\\0", Some("systemd-nspawn")),
            ("== run/.containerenv := engine=\"podman\"", Some("podman")),
        ];
        for (archive, expected) in cases {
            let found = with_machine(archive, |reader| container(reader, &Cgroups::read(reader)));
            assert_eq!(found.as_deref(), expected, "{archive}");
        }
    }

    #[test]
    fn a_docker_image_turned_into_a_disk_is_no_container() {
        let initial = "== .dockerenv := x\n== proc/self/ns/pid -> pid:[4026531836]\n\
                       == proc/self/ns/cgroup -> cgroup:[4026531835]\n";
        assert_eq!(with_machine(initial, |reader| container(reader, &Cgroups::read(reader))), None);
        let own = initial.replace("4026531836", "4026532211");
        let found = with_machine(&own, |reader| container(reader, &Cgroups::read(reader)));
        assert_eq!(found.as_deref(), Some("docker"));
    }

    #[test]
    fn the_group_of_a_controller_through_mount_roots() {
        let archive = "== proc/self/cgroup := 4:cpu,cpuacct:/docker/0123\n== proc/self/mountinfo\n\
            40 32 0:34 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct\n";
        let found = with_machine(archive, |reader| Cgroups::read(reader).controller(reader, "cpu"));
        let folder = "/sys/fs/cgroup/cpu,cpuacct".to_owned();
        assert_eq!(found, Some(Controller { version: 1, folder, is_root_group: false }));
    }

    #[test]
    fn hybrid_mounts_count_by_the_cpuset_controller() {
        let version = |archive: &str| with_machine(archive, |reader| Cgroups::read(reader).version(reader));
        assert_eq!(version("== proc/self/cgroup\n3:cpuset:/\n0::/user.slice\n"), Some(1));
        assert_eq!(version("== proc/self/cgroup\n1:name=systemd:/\n0::/user.slice\n"), Some(1));
        let unified = "== proc/self/cgroup\n1:name=systemd:/\n0::/\n\
                       == sys/fs/cgroup/unified/cgroup.controllers := cpuset cpu\n";
        assert_eq!(version(unified), Some(2));
        assert_eq!(version("== proc/self/cgroup := 0::/"), Some(2));
        assert_eq!(version("== proc/version := x"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(group in "[0-9]?:?[a-z,=]{0,5}:?\\PC{0,9}\n", mount in "([a-z/,]{0,4} ){0,9}(- )?\\PC{0,9}") {
            let cgroups = Cgroups(group);
            let _ = cgroups.mention_group("docker");
            let _ = cgroup_mount(&mount, 1, "cpu");
        }
    }
}
