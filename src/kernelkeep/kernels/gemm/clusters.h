// Groups of a cluster, which see each other's shared memory; and accesses to one, two or four numbers.

// All threads of all groups; what they wrote to shared memory before can be read after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// From the shared memory of the group with this rank.
template <int N>
__device__ __forceinline__ void read_from_cluster(float (&to)[N], unsigned address, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  if constexpr (N == 4)
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(there) : "memory");
  else if constexpr (N == 2)
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(there) : "memory");
  else
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(to[0]) : "r"(there) : "memory");
}

__device__ __forceinline__ float read_from_cluster(unsigned address, unsigned rank) {
  float value[1];
  read_from_cluster<1>(value, address, rank);
  return value[0];
}

template <int N>
__device__ __forceinline__ void read(float (&to)[N], const float* from) {
  if constexpr (N == 4) {
    float4 v = *(const float4*)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (N == 2) {
    float2 v = *(const float2*)from;
    to[0] = v.x, to[1] = v.y;
  } else {
    to[0] = *from;
  }
}

template <int N>
__device__ __forceinline__ void write(float* to, const float (&values)[N]) {
  if constexpr (N == 4)
    *(float4*)to = make_float4(values[0], values[1], values[2], values[3]);
  else if constexpr (N == 2)
    *(float2*)to = make_float2(values[0], values[1]);
  else
    *to = values[0];
}
