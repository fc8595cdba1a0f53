// The head and the end of the kernel; the text of tiled.py, with the changes of split.py, comes between them.
#define kk_float4 float4
#define kk_make_float4 make_float4
#define kk_load4(x, at) (*reinterpret_cast<const float4 *>(&(x)[at]))
#define kk_store4(x, at, v) (*reinterpret_cast<float4 *>(&(x)[at]) = (v))
#define kk_unroll _Pragma("unroll")
#define kk_barrier() __syncthreads()
#define kk_local_id(d) ((int)threadIdx.x)
#define kk_group_id(d) ((d) == 0 ? (int)blockIdx.x : (int)blockIdx.y)
#define kk_shared(type, name, count) __shared__ __align__(16) type name[count]

// Every item of the cluster comes here before one goes on, and sees what the others wrote.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}

// The address of a group's own shared memory in that of another group of the cluster.
__device__ __forceinline__ unsigned in_group(const float *own, int rank) {
    unsigned address = (unsigned)__cvta_generic_to_shared(own), there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ __forceinline__ float4 load4_from(unsigned address) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float load_from(unsigned address) {
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

extern "C" __global__ void __cluster_dims__(1, 1, SPLIT)
__launch_bounds__(BLOCK_M / ITEM_M * (BLOCK_N / ITEM_N) * SLICES)
gemm(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, float alpha, float beta, int m, int n, int k) {
const int rank = (int)blockIdx.z;
// TILED
// The others may still read.
cluster_barrier();
}
