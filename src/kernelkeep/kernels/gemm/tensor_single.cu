//kk: kernel gemm a:buffer:f4:r b:buffer:f4:r c:buffer:f4:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
// C = alpha A B + beta C for float32 matrices, row-major, on matrix units that take TF32, a float32 with 11 bits.
// n and k are multiples of 4: rows begin at multiples of 16 bytes.
//
// With SPLIT 0 the operands are cut to 11 bits. With SPLIT 1 each is the sum of two such numbers, of which three products are
// added: float32's precision. The units' sums are cut off, not rounded, so after every CHUNK steps they go to sums of ours.
//
// A group computes BLOCK_M × 128 of C, tile after tile. One thread copies pieces of A and B, 32 deep, to STAGES places in shared
// memory; with SPLIT 1 a warp group splits those of A. Two warp groups multiply, 64 columns each. The units take the
// transposed product: B from registers, which they need not have along k, and A from shared memory.
//
// Where C has few tiles, SLICES groups share one, a cluster: each adds up a part along k, then each adds up the sums of all for its
// part of the tile. There the grid has a cluster for every tile.
#define TENSOR_ELEMENT "7"
#include "clusters.h"
#include "hopper.h"
#include "tile_order.h"

#define BLOCK_N 128
#define DEPTH 32
#define A_BYTES (BLOCK_M * DEPTH * 4)
#define B_BYTES (BLOCK_N * DEPTH * 4)
#define STAGE_BYTES (A_BYTES * (1 + SPLIT) + B_BYTES)
#define BOX_BYTES (32 * DEPTH * 4)  // of B: 32 columns
#define MULTIPROCESSORS 256
#define THREADS (SPLIT ? 512 : 384)
#define CHUNK 4
// The nearest number of 11 bits. NaN may become 0, but what is left of it then is NaN.
#define ROUNDED(x) (((x) + 0x1000u) & 0xffffe000u)

__device__ __align__(128) unsigned char descriptors[MULTIPROCESSORS][2][128];

// One element with ordinary arithmetic: infinities and NaN do not survive the splitting.
__device__ __noinline__ float plain_sum(const float* a, const float* b, int n, int k) {
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[i] * b[(long long)i * n];
  return sum;
}

struct Product {
  const float *a, *b;
  float* c;
  float alpha, beta;
  int m, n, k;
};

__device__ __forceinline__ void write_element(const Product& of, int row, int column, float value) {
  if (row >= of.m || column >= of.n) return;
#if SPLIT
  if (!(fabsf(value) <= 3.4028234e38f)) value = plain_sum(of.a + (long long)row * of.k, of.b + column, of.n, of.k);
#endif
  float* to = of.c + (long long)row * of.n + column;
  *to = of.beta != 0.0f ? of.alpha * value + of.beta * *to : of.alpha * value;
}

// The values of B that a thread needs of a piece: rows of 128 bytes, whose parts of 16 are swizzled.
__device__ __forceinline__ void load_right(unsigned (&values)[16], const unsigned char* box, int lane, int odd) {
  int r = lane / 4, q = lane % 4;
#pragma unroll
  for (int d = 0; d < 4; d++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int depth = d * 8 + q + (i / 2) * 4;
      int part = odd * 2 + i % 2 + r / 4 * 4;  // columns are shared out so that no two lanes meet in a bank
      values[d * 4 + i] = *(const unsigned*)(box + depth * 128 + ((part ^ (depth & 7)) << 4) + (r & 3) * 4);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
#if SLICES > 1
    __cluster_dims__(SLICES, 1, 1)
#endif
    gemm(const float* a, const float* b, float* c, float alpha, float beta, int m, int n, int k) {
  extern __shared__ unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[3 * STAGES];
  __shared__ __align__(128) unsigned char scratch[2][128];
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
  unsigned char* bytes = memory + (tiles - shared_address(memory));
  unsigned full = shared_address(barriers), empty = full + 8 * STAGES, ready = full + 16 * STAGES;
  int slice = blockIdx.x % SLICES;
  long long all_steps = (k + DEPTH - 1) / DEPTH;
  int first_step = (int)(all_steps * slice / SLICES), steps = (int)(all_steps * (slice + 1) / SLICES) - first_step;
  int across = (n + BLOCK_N - 1) / BLOCK_N;
  int down = (m + BLOCK_M - 1) / BLOCK_M;
  int turns = across * down;

  unsigned here;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
  if (here >= MULTIPROCESSORS) __trap();
  unsigned char* a_map = descriptors[here][0];
  unsigned char* b_map = descriptors[here][1];
  // Three warps begin at the same time.
  if (threadIdx.x < 32) {
    describe_matrix(a_map, shared_address(scratch[0]), a, m, k, 4ll * k, BLOCK_M, DEPTH);
  } else if (threadIdx.x < 64) {
    describe_matrix(b_map, shared_address(scratch[1]), b, k, n, 4ll * n, DEPTH, 32);
  } else if (threadIdx.x == 64) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 8);
      barrier_init(ready + 8 * i, 128);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      acquire_descriptor(a_map);
      acquire_descriptor(b_map);
      int stage = 0, parity = 1;
      for (int turn = blockIdx.x / SLICES; turn < turns; turn += gridDim.x / SLICES) {
        Place at = place_of(turn, down, across);
        int row = at.row * BLOCK_M, column = at.column * BLOCK_N;
        for (int step = 0; step < steps; step++) {
          barrier_wait(empty + 8 * stage, parity);
          unsigned to = tiles + stage * STAGE_BYTES;
          barrier_expect(full + 8 * stage, A_BYTES + B_BYTES);
          copy_tile(to, a_map, full + 8 * stage, (first_step + step) * DEPTH, row);
#pragma unroll
          for (int box = 0; box < BLOCK_N / 32; box++)
            copy_tile(to + STAGE_BYTES - B_BYTES + box * BOX_BYTES, b_map, full + 8 * stage, column + box * 32, (first_step + step) * DEPTH);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
#if SLICES > 1
    cluster_sync();
    cluster_sync();
#endif
#if SPLIT
  } else if (threadIdx.x < 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    int stage = 0, parity = 0;
    for (int turn = blockIdx.x / SLICES; turn < turns; turn += gridDim.x / SLICES) {
      for (int step = 0; step < steps; step++) {
        barrier_wait(full + 8 * stage, parity);
        uint4* from = (uint4*)(bytes + stage * STAGE_BYTES) + threadIdx.x - 128;
        uint4 x[4];
#pragma unroll
        for (int first = 0; first < A_BYTES / 16; first += 4 * 128) {
#pragma unroll
          for (int i = 0; i < 4; i++) x[i] = from[first + i * 128];
#pragma unroll
          for (int i = 0; i < 4; i++) {
            uint4 high = make_uint4(ROUNDED(x[i].x), ROUNDED(x[i].y), ROUNDED(x[i].z), ROUNDED(x[i].w));
            float4 low = make_float4(
                __uint_as_float(x[i].x) - __uint_as_float(high.x), __uint_as_float(x[i].y) - __uint_as_float(high.y),
                __uint_as_float(x[i].z) - __uint_as_float(high.z), __uint_as_float(x[i].w) - __uint_as_float(high.w));
            from[first + i * 128] = high;
            *(float4*)(from + A_BYTES / 16 + first + i * 128) = low;
          }
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        barrier_arrive(ready + 8 * stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
#if SLICES > 1
    cluster_sync();
    cluster_sync();
#endif
#endif
  } else {
#if SPLIT
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
#else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    int warp_group = threadIdx.x / 128 - 1 - SPLIT, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    unsigned box = STAGE_BYTES - B_BYTES + (warp_group * 2 + warp / 2) * BOX_BYTES;
    int stage = 0, parity = 0;
    float sums[BLOCK_M / 2];
#if SPLIT
    float total[BLOCK_M / 2];
#endif
    unsigned right[16];
    for (int turn = blockIdx.x / SLICES; turn < turns; turn += gridDim.x / SLICES) {
      Place at = place_of(turn, down, across);
#if SPLIT
#pragma unroll
      for (int i = 0; i < BLOCK_M / 2; i++) total[i] = 0.0f;
#endif
      int fresh = 0;
#if SLICES > 1
#pragma unroll
      for (int i = 0; i < BLOCK_M / 2; i++) sums[i] = 0.0f;  // a slice may have no steps
      if (steps > 0)
#endif
      {
        barrier_wait(full + 8 * stage, parity);
        load_right(right, bytes + stage * STAGE_BYTES + box, lane, warp % 2);
      }
      for (int step = 0; step < steps; step++) {
#if SPLIT
        unsigned high[16], low[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
          high[i] = ROUNDED(right[i]);
          low[i] = __float_as_uint(__uint_as_float(right[i]) - __uint_as_float(high[i]));
        }
        barrier_wait(ready + 8 * stage, parity);
#else
        unsigned high[16];
#pragma unroll
        for (int i = 0; i < 16; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high[i]) : "f"(__uint_as_float(right[i])));
#endif
        unsigned from = tiles + stage * STAGE_BYTES;
        products_begin();
#pragma unroll
        for (int d = 0; d < 4; d++) {
          unsigned long long left = tile_descriptor(from + d * 32, 16, 1024);
#if SPLIT
          unsigned long long left_low = tile_descriptor(from + A_BYTES + d * 32, 16, 1024);
          multiply_tf32<BLOCK_M>(sums, high + 4 * d, left_low, fresh | d);
          multiply_tf32<BLOCK_M>(sums, low + 4 * d, left, 1);
          multiply_tf32<BLOCK_M>(sums, high + 4 * d, left, 1);
#else
          multiply_tf32<BLOCK_M>(sums, high + 4 * d, left, fresh | d);
#endif
        }
        products_commit();
        fresh = 1;
        int before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
        if (step + 1 < steps) {
          barrier_wait(full + 8 * stage, parity);
          load_right(right, bytes + stage * STAGE_BYTES + box, lane, warp % 2);
        }
        products_wait<0>();
        if (lane == 0) barrier_arrive(empty + 8 * before);
#if SPLIT
        if ((step + 1) % CHUNK == 0 || step + 1 == steps) {
#pragma unroll
          for (int i = 0; i < BLOCK_M / 2; i++) total[i] += sums[i];
          fresh = 0;
        }
#endif
      }

#if SPLIT
      float(&found)[BLOCK_M / 2] = total;
#else
      float(&found)[BLOCK_M / 2] = sums;
#endif
      const Product product = {a, b, c, alpha, beta, m, n, k};
      int r = lane / 4;
      int column = at.column * BLOCK_N + (warp_group * 2 + warp / 2) * 32 + warp % 2 * 8;
      int row = at.row * BLOCK_M + lane % 4 * 2;
#if SLICES == 1
      // A thread has, of two columns, pairs of rows of C. Two threads exchange theirs, so that eight write 32 bytes of a row.
#pragma unroll
      for (int j = 0; j < BLOCK_M / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float one = found[j * 4 + i], two = found[j * 4 + 2 + i];
          float other = __shfl_xor_sync(~0u, r < 4 ? two : one, 16);
          if (r < 4) two = other; else one = other;
          write_element(product, row + j * 8 + i, column + r, one);
          write_element(product, row + j * 8 + i, column + r + 16, two);
        }
      }
#else
      // The pieces are used up, by both warp groups: their memory takes the sums.
      asm volatile("bar.sync 1, 256;" ::: "memory");
      int me = threadIdx.x - (THREADS - 256);
#pragma unroll
      for (int i = 0; i < BLOCK_M / 2; i++) ((float*)bytes)[i * 256 + me] = found[i];
      cluster_sync();
#pragma unroll 4
      for (int e = 0; e < BLOCK_M / 2 / SLICES; e++) {
        int i = slice * (BLOCK_M / 2 / SLICES) + e;
        float value = 0.0f;
#pragma unroll
        for (int other = 0; other < SLICES; other++) value += read_from_cluster(tiles + (i * 256 + me) * 4, other);
        write_element(product, row + i / 4 * 8 + i % 2, column + i / 2 % 2 * 4 + (r & 3) + r / 4 * 16, value);
      }
      cluster_sync();  // others may still read here
#endif
    }
  }
}
