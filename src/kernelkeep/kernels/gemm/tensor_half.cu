//kk: kernel gemm a:buffer:?:r b:buffer:?:r c:buffer:?:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
// C = alpha A B + beta C for matrices of 16-bit floats (half or bfloat16), row-major, with sums in float32.
// n and k are multiples of 8: rows begin at multiples of 16 bytes.
//
// A group computes BLOCK_M × BLOCK_N of C, tile after tile. One thread copies pieces of A and B, 64 deep, to STAGES places in
// shared memory; two warp groups multiply what is there. Where CLUSTER is 2, two groups take tiles above each other and
// copy one half of the piece of B each, to both.
#if BFLOAT
#define HALF_KIND "bf16"
#define TENSOR_ELEMENT "10"
#else
#define HALF_KIND "f16"
#define TENSOR_ELEMENT "6"
#endif
#include "hopper.h"

#define DEPTH 64
#define PARTS (BLOCK_M / 128)  // tiles of 64 rows of each warp group
#define A_BYTES (BLOCK_M * DEPTH * 2)
#define B_BYTES (BLOCK_N * DEPTH * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BOX_BYTES (64 * DEPTH * 2)  // of B: 64 columns
#define MULTIPROCESSORS 256

__device__ __align__(128) unsigned char descriptors[MULTIPROCESSORS][2][128];

#if BFLOAT
__device__ __forceinline__ float widened(unsigned x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#else
__device__ __forceinline__ float widened(unsigned x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((unsigned short)x));
  return wide;
}
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#endif

struct Place {
  int row, column;
};

// The tile of C for a turn. Neighbours in time are near each other, so that they find A and B in the cache.
__device__ __forceinline__ Place place_of(int turn, int down, int across) {
  int many = BAND * across;
  int first = turn / many * BAND;
  int rows = min(BAND, down - first);
  int within = turn % many;
  Place place;
  place.row = first + within % rows;
  place.column = within / rows;
  return place;
}

extern "C" __global__ void __launch_bounds__(384, 1)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        gemm(const unsigned short* a, const unsigned short* b, unsigned short* c, float alpha, float beta, int m, int n, int k) {
  extern __shared__ unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
  __shared__ __align__(128) unsigned char scratch[2][128];
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
  unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
  int steps = (k + DEPTH - 1) / DEPTH;
  int across = (n + BLOCK_N - 1) / BLOCK_N;
  int down = (m + BLOCK_M * CLUSTER - 1) / (BLOCK_M * CLUSTER);
  int rank = blockIdx.x % CLUSTER;
  int turns = across * down;

  unsigned here;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
  if (here >= MULTIPROCESSORS) __trap();
  unsigned char* a_map = descriptors[here][0];
  unsigned char* b_map = descriptors[here][1];
  if (threadIdx.x < 32) {
    describe_matrix(a_map, shared_address(scratch[0]), a, m, k, 2ll * k, BLOCK_M > 256 ? 256 : BLOCK_M, DEPTH);
    describe_matrix(b_map, shared_address(scratch[1]), b, k, n, 2ll * n, DEPTH, 64);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 8 * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  __syncthreads();
#if CLUSTER > 1
  cluster_sync();
#endif

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      acquire_descriptor(a_map);
      acquire_descriptor(b_map);
      int stage = 0, parity = 1;
      for (int turn = blockIdx.x / CLUSTER; turn < turns; turn += gridDim.x / CLUSTER) {
        Place at = place_of(turn, down, across);
        int row = (at.row * CLUSTER + rank) * BLOCK_M, column = at.column * BLOCK_N;
        for (int step = 0; step < steps; step++) {
          barrier_wait(empty + 8 * stage, parity);
          unsigned to = tiles + stage * STAGE_BYTES;
          barrier_expect(full + 8 * stage, STAGE_BYTES);
          copy_tile(to, a_map, full + 8 * stage, step * DEPTH, row);
#pragma unroll
          for (int i = 0; i < BLOCK_N / 64 / CLUSTER; i++) {
            int box = i + rank * (BLOCK_N / 64 / CLUSTER);
            unsigned part = to + A_BYTES + box * BOX_BYTES;
#if CLUSTER > 1
            copy_tile_to_cluster(part, b_map, full + 8 * stage, column + box * 64, step * DEPTH, (1 << CLUSTER) - 1);
#else
            copy_tile(part, b_map, full + 8 * stage, column + box * 64, step * DEPTH);
#endif
          }
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int warp_group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    int stage = 0, parity = 0;
    float sums[PARTS][BLOCK_N / 2];
    for (int turn = blockIdx.x / CLUSTER; turn < turns; turn += gridDim.x / CLUSTER) {
      Place at = place_of(turn, down, across);
      int before = 0;
      for (int step = 0; step < steps; step++) {
        barrier_wait(full + 8 * stage, parity);
        unsigned from = tiles + stage * STAGE_BYTES;
        products_begin();
#pragma unroll
        for (int d = 0; d < DEPTH / 16; d++) {
          unsigned long long right = tile_descriptor(from + A_BYTES + d * 16 * 128, BOX_BYTES, 1024);
#pragma unroll
          for (int part = 0; part < PARTS; part++) {
            unsigned long long left = tile_descriptor(from + (warp_group * PARTS + part) * 64 * 128 + d * 32, 16, 1024);
            multiply_halves<BLOCK_N>(sums[part], left, right, step | d);
          }
        }
        products_commit();
        products_wait<1>();  // those of the step before are done
        if (step > 0) {
#if CLUSTER > 1
          if (lane < CLUSTER) barrier_arrive_at(empty + 8 * before, lane);
#else
          if (lane == 0) barrier_arrive(empty + 8 * before);
#endif
        }
        before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      products_wait<0>();
#if CLUSTER > 1
      if (lane < CLUSTER) barrier_arrive_at(empty + 8 * before, lane);
#else
      if (lane == 0) barrier_arrive(empty + 8 * before);
#endif

      // A thread has pairs of neighbours in every eighth pair of columns. Four threads exchange theirs, so that each has
      // eight neighbours, 16 bytes, to write.
      int quarter = lane % 4;
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        int first = (at.row * CLUSTER + rank) * BLOCK_M + (warp_group * PARTS + part) * 64 + warp * 16 + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          int row = first + half * 8;
          unsigned short* to = c + (long long)row * n;
#pragma unroll
          for (int j = 0; j < BLOCK_N / 32; j++) {
            float v[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
              v[2 * i] = sums[part][(4 * j + i) * 4 + half * 2];
              v[2 * i + 1] = sums[part][(4 * j + i) * 4 + half * 2 + 1];
            }
            int column = at.column * BLOCK_N + j * 32 + quarter * 8;
            bool inside = row < m && column < n;
            unsigned p[4];
            if (beta == 0.0f) {
#pragma unroll
              for (int i = 0; i < 4; i++) p[i] = packed(alpha * v[2 * i], alpha * v[2 * i + 1]);
            } else {
              // What C holds now goes the other way first.
              uint4 old = make_uint4(0, 0, 0, 0);
              if (inside) old = *(const uint4*)(to + column);
              unsigned q[4] = {old.x, old.y, old.z, old.w};
              unsigned r0 = __shfl_xor_sync(~0u, quarter & 2 ? q[0] : q[2], 2), r1 = __shfl_xor_sync(~0u, quarter & 2 ? q[1] : q[3], 2);
              if (quarter & 2) q[0] = r0, q[1] = r1; else q[2] = r0, q[3] = r1;
              r0 = __shfl_xor_sync(~0u, quarter & 1 ? q[0] : q[1], 1), r1 = __shfl_xor_sync(~0u, quarter & 1 ? q[2] : q[3], 1);
              if (quarter & 1) q[0] = r0, q[2] = r1; else q[1] = r0, q[3] = r1;
#pragma unroll
              for (int i = 0; i < 4; i++)
                p[i] = packed(alpha * v[2 * i] + beta * widened(q[i] & 0xffff), alpha * v[2 * i + 1] + beta * widened(q[i] >> 16));
            }
            unsigned r0 = __shfl_xor_sync(~0u, quarter & 1 ? p[0] : p[1], 1), r1 = __shfl_xor_sync(~0u, quarter & 1 ? p[2] : p[3], 1);
            if (quarter & 1) p[0] = r0, p[2] = r1; else p[1] = r0, p[3] = r1;
            r0 = __shfl_xor_sync(~0u, quarter & 2 ? p[0] : p[2], 2), r1 = __shfl_xor_sync(~0u, quarter & 2 ? p[1] : p[3], 2);
            if (quarter & 2) p[0] = r0, p[1] = r1; else p[2] = r0, p[3] = r1;
            if (inside) *(uint4*)(to + column) = make_uint4(p[0], p[1], p[2], p[3]);
          }
        }
      }
    }
  }
#if CLUSTER > 1
  // Others of the cluster may still write here.
  __syncthreads();
  cluster_sync();
#endif
}
