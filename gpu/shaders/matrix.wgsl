// Multiplies two square matrices of small whole numbers, which single precision holds exactly. `factors` is one after the other.

@group(0) @binding(0) var<storage, read_write> factors: array<f32>;
@group(0) @binding(1) var<storage, read_write> product: array<f32>;

const TILE = 16u;
var<workgroup> left: array<array<f32, 16>, 16>;
var<workgroup> right: array<array<f32, 16>, 16>;

@compute @workgroup_size(16, 16)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let side = groups.x * TILE;
    let at = id.y * side + id.x;
    factors[at] = f32((id.y + id.x) % 7u);
    factors[side * side + at] = f32((id.y * 3u + id.x) % 5u);
}

@compute @workgroup_size(16, 16)
fn multiply(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let side = groups.x * TILE;
    var sum = 0.0;
    for (var tile = 0u; tile < groups.x; tile += 1u) {
        left[local.y][local.x] = factors[id.y * side + tile * TILE + local.x];
        right[local.y][local.x] = factors[side * side + (tile * TILE + local.y) * side + id.x];
        workgroupBarrier();
        for (var k = 0u; k < TILE; k += 1u) {
            sum += left[local.y][k] * right[k][local.x];
        }
        workgroupBarrier();
    }
    product[id.y * side + id.x] = sum;
}
