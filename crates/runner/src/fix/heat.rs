//! Whether the machine is too hot: then its latencies are those of a slowed processor.

use whylate_host::HostRoot;

const ZONES: &str = "/sys/class/thermal";

/// The first thermal zone that has reached one of its trip points at which the kernel slows it down or worse, as a
/// sentence.
pub(super) fn too_hot(root: &HostRoot) -> Option<String> {
    let zones = root.list(ZONES).ok()?;
    zones.iter().filter(|name| name.starts_with("thermal_zone")).find_map(|zone| {
        let read = |file: &str| root.read_trimmed(&format!("{ZONES}/{zone}/{file}")).ok().flatten();
        let number = |file: &str| read(file)?.parse::<i64>().ok();
        let now = number("temp")?;
        let trip = |index: u32| -> Option<(i64, String)> {
            Some((number(&format!("trip_point_{index}_temp"))?, read(&format!("trip_point_{index}_type"))?))
        };
        let (at, kind) = (0..16).filter_map(trip).find(|(at, kind)| {
            *at > 0 && now >= *at && ["passive", "hot", "critical"].contains(&kind.as_str())
        })?;
        let name = read("type").unwrap_or_else(|| zone.clone());
        Some(format!("too hot: {name} at {} C, its {kind} trip point is {} C", now / 1000, at / 1000))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn a_zone_above_its_passive_trip_point_is_too_hot() {
        let folder = tempfile::tempdir().unwrap();
        let zone = folder.path().join("sys/class/thermal/thermal_zone0");
        std::fs::create_dir_all(&zone).unwrap();
        let write = |file: &str, text: &str| std::fs::write(zone.join(file), text).unwrap();
        write("type", "x86_pkg_temp\n");
        write("trip_point_0_temp", "95000\n");
        write("trip_point_0_type", "passive\n");
        write("temp", "94000\n");
        let root = HostRoot::at(folder.path());
        assert_eq!(too_hot(&root), None);
        write("temp", "96000\n");
        assert!(says("too-hot-x86-pkg", too_hot(&root).unwrap()));
        write("trip_point_0_type", "active\n");
        assert_eq!(too_hot(&root), None, "a fan");
    }
}
