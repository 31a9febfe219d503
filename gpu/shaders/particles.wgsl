// Particles on a grid of 512 by 512 points, each moving by its own steps and coming in again on the other side.

@group(0) @binding(0) var<storage, read_write> places: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> steps: array<vec2<u32>>;

const SIDE = 512u;

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var index = id.x; index < arrayLength(&places); index += groups.x * 256u) {
        let random = index * 2654435761u;
        places[index] = vec2<u32>((random >> 8u) % SIDE, (random >> 17u) % SIDE);
        steps[index] = vec2<u32>(1u + index % 7u, 1u + index % 5u);
    }
}

@compute @workgroup_size(256)
fn advance(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var index = id.x; index < arrayLength(&places); index += groups.x * 256u) {
        places[index] = (places[index] + steps[index]) % vec2<u32>(SIDE, SIDE);
    }
}
