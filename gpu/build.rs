//! Translates the shaders from WGSL, as they stand in `shaders/`, to SPIR-V, as drivers take them.

use naga::back::spv;
use naga::front::wgsl;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::path::Path;

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo::rerun-if-changed=shaders");
    for name in ["reduction", "matrix", "particles", "points"] {
        let path = format!("shaders/{name}.wgsl");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let module =
            wgsl::parse_str(&text).unwrap_or_else(|error| panic!("{path}: {}", error.emit_to_string(&text)));
        let info = Validator::new(ValidationFlags::all(), Capabilities::default())
            .validate(&module)
            .unwrap_or_else(|error| panic!("{path}: {error:?}"));
        // Vulkan wants the size of points to be written.
        let flags = spv::WriterFlags::FORCE_POINT_SIZE;
        let options = spv::Options { lang_version: (1, 3), flags, ..spv::Options::default() };
        let words =
            spv::write_vec(&module, &info, &options, None).unwrap_or_else(|error| panic!("{path}: {error}"));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(Path::new(&folder).join(format!("{name}.spv")), bytes)
            .expect("OUT_DIR can be written");
    }
}
