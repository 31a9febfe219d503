//! Devices that were asked for are there, and are mapped as real ones would be.

use std::time::Duration;
use whylate_lab::suite::LabTest;
use whylate_lab::{Device, Guest, Image, Kernel, LOAD_PLANT, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = |devices: &[Device]| Machine::new(Profile::Threads, Kernel::RealTime).with(devices);
    let plain = machine(&[]);
    let with_all = machine(&[
        Device::BochsDisplay,
        Device::VirtioGpu,
        Device::SharedMemoryBar,
        Device::SecondDisk,
        Device::ExtraCpus,
    ]);
    let with_vesa = machine(&[Device::VesaFramebuffer]);
    let with_screen = machine(&[Device::BochsDisplay]).image(Image::Graphics);
    vec![
        LabTest::new("devices_vgem_buffers_are_write_combining", plain.clone(), vgem),
        LabTest::new("devices_clocks_are_there", plain.clone(), clocks),
        LabTest::new("devices_a_cpu_goes_and_comes_back", plain, cpu_goes_offline),
        LabTest::new("devices_displays_have_drivers_and_a_console", with_all.clone(), displays),
        LabTest::new("devices_a_bar_is_mapped_as_asked", with_all.clone(), bar),
        LabTest::new("devices_a_second_disk_holds_data", with_all.clone(), second_disk),
        LabTest::new("devices_a_cpu_is_plugged_in", with_all, cpu_is_plugged_in),
        LabTest::new("devices_vesafb_is_write_combining", with_vesa, vesa),
        LabTest::new("devices_xorg_draws", with_screen.clone(), xorg),
        LabTest::new("devices_xorg_is_drawn_on_from_either_cpu", with_screen, either_cpu),
    ]
}

fn vgem(guest: &mut Guest) -> Result<(), LabError> {
    let kind = guest.ok(&format!(
        "{LOAD_PLANT}modprobe vgem\ncard=$(ls -d /sys/devices/platform/vgem/drm/card* | head -1)\n\
         /lab/memory-type /dev/dri/${{card##*/}}"
    ))?;
    assert_eq!(kind, "WC");
    Ok(())
}

fn clocks(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("test -c /dev/rtc0; test -c /dev/hpet")?;
    let sources = guest.ok("cat /sys/devices/system/clocksource/clocksource0/available_clocksource")?;
    assert!(sources.contains("hpet") && sources.contains("acpi_pm"), "{sources}");
    Ok(())
}

fn cpu_goes_offline(guest: &mut Guest) -> Result<(), LabError> {
    let online = "cat /sys/devices/system/cpu/online";
    assert_eq!(guest.ok(&format!("echo 0 >/sys/devices/system/cpu/cpu1/online\n{online}"))?, "0");
    assert_eq!(guest.ok(&format!("echo 1 >/sys/devices/system/cpu/cpu1/online\n{online}"))?, "0-1");
    Ok(())
}

fn displays(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("modprobe bochs; modprobe virtio-gpu")?;
    let drivers =
        guest.ok("for card in /sys/class/drm/card?; do basename $(readlink $card/device/driver); done")?;
    assert!(drivers.contains("bochs"), "{drivers}");
    assert!(drivers.contains("virtio_gpu") || drivers.contains("virtio-pci"), "{drivers}");
    let consoles = guest.ok("cat /proc/fb; cat /sys/class/vtconsole/*/name")?;
    assert!(consoles.contains("bochs") && consoles.contains("frame buffer device"), "{consoles}");
    Ok(())
}

fn bar(guest: &mut Guest) -> Result<(), LabError> {
    let path =
        guest.ok("for d in /sys/bus/pci/devices/*; do [ $(cat $d/device) != 0x1110 ] || echo $d; done")?;
    assert!(!path.is_empty(), "there is no ivshmem device");
    for (resource, expected) in [("resource2", "UC-"), ("resource2_wc", "WC")] {
        let kind =
            guest.ok(&format!("{LOAD_PLANT}echo 1 >{path}/enable\n/lab/memory-type {path}/{resource}"))?;
        assert_eq!(kind, expected, "{resource}");
    }
    Ok(())
}

fn second_disk(guest: &mut Guest) -> Result<(), LabError> {
    let text = guest.ok(
        "mke2fs -q /dev/vdc\nmount /dev/vdc /mnt\necho kept >/mnt/file\numount /mnt\nmount /dev/vdc /mnt\n\
         cat /mnt/file\numount /mnt\nblockdev --getsize64 /dev/vdc",
    )?;
    assert_eq!(text, "kept\n67108864");
    Ok(())
}

fn cpu_is_plugged_in(guest: &mut Guest) -> Result<(), LabError> {
    let answer = guest.monitor("device_add max-x86_64-cpu,id=extra,socket-id=2,core-id=0,thread-id=0")?;
    assert!(!answer.contains("Error"), "{answer}");
    let online = guest.ok(
        "for attempt in $(seq 600); do [ ! -e /sys/devices/system/cpu/cpu2/online ] || break; sleep 0.1; done\n\
         echo 1 >/sys/devices/system/cpu/cpu2/online 2>/dev/null || true\ncat /sys/devices/system/cpu/online",
    )?;
    assert_eq!(online, "0-2");
    Ok(())
}

fn vesa(guest: &mut Guest) -> Result<(), LabError> {
    let name = guest.ok("cat /proc/fb")?;
    assert!(name.contains("VESA"), "{name}");
    let kind = guest.ok(&format!("{LOAD_PLANT}/lab/memory-type /dev/fb0"))?;
    assert_eq!(kind, "WC");
    Ok(())
}

/// Starts Xorg with the card, and waits for it.
const XORG: &str = r#"modprobe bochs
cat >/tmp/xorg.conf <<'END'
Section "ServerFlags"
 Option "AutoAddDevices" "false"
 Option "AllowEmptyInput" "true"
EndSection
Section "Device"
 Identifier "card"
 Driver "modesetting"
 Option "kmsdev" "/dev/dri/card0"
EndSection
END
Xorg :0 -config /tmp/xorg.conf -noreset -nolisten tcp -novtswitch -logfile $OUT/xorg.log >$OUT/xorg.out 2>&1 & xorg=$!
while kill -0 $xorg && [ ! -S /tmp/.X11-unix/X0 ]; do sleep 0.1; done
"#;

fn xorg(guest: &mut Guest) -> Result<(), LabError> {
    let text = guest
        .ok(&format!("{XORG}DISPLAY=:0 x11perf -sync -rect500 -repeat 1 -time 1\nkill $xorg; wait $xorg"))?;
    assert!(text.contains("500x500 rectangle"), "{text}");
    Ok(())
}

/// A plan that draws from the measured CPU and from the other one, with a period that leaves an emulated CPU time to draw; where x11perf may run is looked at meanwhile.
const DRAWING: &str = r#"cat >/tmp/drawing.toml <<'END'
name = "drawing"
duration = "6s"
repeats = 1
settle = "0s"
noise_floor = "0s"
[target]
cpus = "1"
[[probe]]
kind = "timer"
interval = "5ms"
[[load]]
name = "same"
kind = "graphics"
server = ":0"
cpus = "1"
[[load]]
name = "other"
kind = "graphics"
server = ":0"
cpus = "0"
[[cell]]
loads = ["same"]
[[cell]]
loads = ["other"]
END
rm -rf /tmp/drawing
while :; do for pid in $(pidof x11perf); do grep -H Cpus_allowed_list /proc/$pid/status; done; sleep 0.3; done >/tmp/places 2>/dev/null & looking=$!
whylate run /tmp/drawing.toml -o /tmp/drawing --json -q >$OUT/result.json; status=$?
kill $looking $xorg; wait $looking $xorg
grep -o '[^:]*$' /tmp/places | sort -un >$OUT/places
exit $status
"#;

fn either_cpu(guest: &mut Guest) -> Result<(), LabError> {
    let output = guest.start(&format!("{XORG}{DRAWING}"))?.wait(Duration::from_secs(400))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let places = std::fs::read_to_string(output.files.join("places")).unwrap();
    assert_eq!(places.split_whitespace().collect::<Vec<_>>(), ["0", "1"]);
    let result: serde_json::Value = output.json("result.json")?;
    for cell in result["cells"].as_array().unwrap() {
        assert!(cell["rates"][0]["mean"].as_f64() > Some(0.0), "{cell}");
        assert!(cell["probes"][0]["cpus"][0]["samples"].as_u64() > Some(0), "{cell}");
    }
    Ok(())
}
