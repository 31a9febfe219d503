// The programs of the CUDA loads. The helper has them as cuda.ptx next to this file, which the driver translates for
// the device in the machine. After a change, with NVRTC of CUDA 12 (pip: nvidia-cuda-nvrtc-cu12; no device is needed):
//
//     python3 gpu/shaders/cuda_ptx.py gpu/shaders/cuda.cu > gpu/shaders/cuda.ptx
//
// Each does what the WGSL program of the same name does, so that both are checked in one way.

typedef unsigned int u32;

#define STEP (gridDim.x * blockDim.x)
#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define SIDE 512u

extern "C" __global__ void fill_numbers(u32 *numbers, u32 count)
{
    for (u32 index = FIRST; index < count; index += STEP)
        numbers[index] = index * 2654435761u + 12345u;
}

// Each block of 256 leaves one sum.
extern "C" __global__ void add_numbers(const u32 *numbers, u32 count, u32 *sums)
{
    __shared__ u32 partial[256];
    u32 sum = 0;
    for (u32 index = FIRST; index < count; index += STEP)
        sum += numbers[index];
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 total = 0;
        for (u32 index = 0; index < 256; index++)
            total += partial[index];
        sums[blockIdx.x] = total;
    }
}

extern "C" __global__ void fill_particles(uint2 *places, uint2 *steps, u32 count)
{
    for (u32 index = FIRST; index < count; index += STEP) {
        u32 random = index * 2654435761u;
        places[index] = make_uint2((random >> 8) % SIDE, (random >> 17) % SIDE);
        steps[index] = make_uint2(1 + index % 7, 1 + index % 5);
    }
}

extern "C" __global__ void clear_image(u32 *image, u32 pixels)
{
    for (u32 index = FIRST; index < pixels; index += STEP)
        image[index] = 0;
}

// Moves each particle, and lights its pixel: several may light one.
extern "C" __global__ void move_particles(uint2 *places, const uint2 *steps, u32 count, u32 *image)
{
    for (u32 index = FIRST; index < count; index += STEP) {
        uint2 place = places[index];
        place.x = (place.x + steps[index].x) % SIDE;
        place.y = (place.y + steps[index].y) % SIDE;
        places[index] = place;
        image[place.y * SIDE + place.x] = 0xffffffffu;
    }
}
