// Fills a buffer with numbers, and adds them up: each group of 256 leaves one sum. Sums wrap.

@group(0) @binding(0) var<storage, read_write> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> partial: array<u32, 256>;

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let step = groups.x * 256u;
    for (var index = id.x; index < arrayLength(&numbers); index += step) {
        numbers[index] = index * 2654435761u + 12345u;
    }
}

@compute @workgroup_size(256)
fn add(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let step = groups.x * 256u;
    var sum = 0u;
    for (var index = id.x; index < arrayLength(&numbers); index += step) {
        sum += numbers[index];
    }
    partial[local.x] = sum;
    workgroupBarrier();
    // One barrier only: software runs each thread of a group up to it, and then each from there on.
    if (local.x == 0u) {
        var total = 0u;
        for (var index = 0u; index < 256u; index += 1u) {
            total += partial[index];
        }
        sums[group.x] = total;
    }
}
