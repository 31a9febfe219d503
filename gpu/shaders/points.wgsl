// Draws each particle as one point of an image of 512 by 512.

@vertex
fn place(@location(0) place: vec2<u32>) -> @builtin(position) vec4<f32> {
    // Centres of pixels.
    let at = (vec2<f32>(place) + vec2<f32>(0.5, 0.5)) / 256.0 - vec2<f32>(1.0, 1.0);
    return vec4<f32>(at, 0.0, 1.0);
}

@fragment
fn paint() -> @location(0) vec4<f32> {
    return vec4<f32>(1.0, 1.0, 1.0, 1.0);
}
