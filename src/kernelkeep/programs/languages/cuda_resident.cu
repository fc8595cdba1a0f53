// A grid that stays: every block takes tasks from a ring of its own in host memory, and tells the host what it has done.
//
// A block has KK_THREADS workers, which run tasks, and two more warps. The reader looks whether the host has submitted
// something and fetches it into shared memory; the writer tells the host what is done, and that the block lives. So both go on
// while a task runs. `resident/protocol.py` describes the ring; what blocks share is in `kk_Grid`.
//
// Blocks work together in two ways. A wide task is run by all of them at once: the block that has it calls the others, and
// waits until all have run their part. A graph is run by those that have nothing else to do: they join, take nodes that are
// ready, and leave at the end. Whoever waits for another block answers calls meanwhile, so waits never form a circle.

typedef unsigned int kk_u32;
typedef unsigned long long kk_u64;

#define KK_LINE 128
#define KK_ALL 0xffffffffu
#define KK_NONE 0xffffffffu
#define KK_WORKERS_BARRIER 1
#define KK_COMMAND_EXIT 1
#define KK_BEAT_NANOSECONDS 1000000
#define KK_RESULTS_AT (KK_LINE * (1ull + 2 * gridDim.x))
#define KK_SLOTS_AT (KK_RESULTS_AT + (kk_u64)gridDim.x * KK_CAPACITY * 16)
#define KK_WIDE 0x80000000u  // in the task number of a record: for all blocks
#define KK_GRAPH 0xffffffffu  // a task number: run a graph
#define KK_TRACED_WIDE 1
#define KK_IN_GRAPH 2  // in traces only
#define KK_PART 4

// --- memory that others write

static __device__ inline kk_u64 kk_look_system(const kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline void kk_tell_system(kk_u64* p, kk_u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ inline void kk_fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static __device__ inline kk_u32 kk_look(const kk_u32* p) {
    kk_u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline kk_u64 kk_look(const kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline void kk_tell(kk_u32* p, kk_u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ inline void kk_tell(kk_u64* p, kk_u64 v) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ inline void kk_fence_grid() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
static __device__ inline void kk_fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
static __device__ inline uint4 kk_fetch(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
static __device__ inline kk_u64 kk_nanoseconds() {
    kk_u64 v;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(v));
    return v;
}
static __device__ inline kk_u64 kk_trace_time() {
#if KK_TIMELINE
    return threadIdx.x == 0 ? kk_nanoseconds() : 0;
#else
    return 0;
#endif
}
static __device__ inline void kk_workers_meet() { __barrier_sync_count(KK_WORKERS_BARRIER, KK_THREADS); }

// --- what blocks share, in device memory; the host sets it to 0 before each start

struct __align__(KK_LINE) kk_Line32 {
    kk_u32 value;
};
struct __align__(KK_LINE) kk_Line64 {
    kk_u64 value;
};
struct kk_Grid {
    kk_Line32 wide_lock;  // held by the block that calls the others
    kk_Line32 wide_calls;  // calls ever
    kk_Line32 wide_parts;  // parts of this call that were run, without the caller's
    kk_Line32 run_lock;  // held by the block that runs a graph
    kk_Line64 run;  // calls ever << 32 | open << 31 | blocks that joined
    kk_Line64 run_graph;  // the address of the graph
    kk_Line32 run_number;
    kk_Line32 run_left;  // blocks that joined and have left
    kk_Line32 leaving;  // blocks that take no more tasks
    __align__(KK_LINE) uint4 wide_record[KK_SLOT / 16];
    kk_u64 wide_result;
};
#define KK_RUN_OPEN 0x80000000ull

// A graph in device memory. Behind the head lie the nodes, their successors, how many predecessors of each were run, and the
// queue of nodes that are ready. Counters of predecessors grow from run to run, so nothing is set back.
struct kk_Graph {
    kk_u32 nodes;
    kk_u32 roots;  // the first nodes
    kk_u32 runs;  // ever
    kk_u32 unused;
    kk_u64 node_records;  // addresses
    kk_u64 successors;
    kk_u64 arrived;
    kk_u64 queue;
    kk_Line32 pushed;
    kk_Line32 popped;
    kk_Line32 run;
};
struct kk_Node {
    kk_u32 wanted;  // predecessors
    kk_u32 first;  // of its successors
    kk_u32 successors;
    kk_u32 next;  // the only successor, where this node is its only predecessor; else KK_NONE
    // the record of the task follows
};
#define KK_NODE (16 + KK_SLOT)

// --- what a block shares

__shared__ kk_u32 kk_block_x, kk_blocks_x;  // the position of this block in the task: 0 of 1, or its place in the grid
#define kk_block_y 0u
#define kk_block_z 0u
#define kk_blocks_y 1u
#define kk_blocks_z 1u
#define kk_threads_x (kk_u32)KK_THREADS
#define kk_threads_y 1u
#define kk_threads_z 1u

struct kk_Block {
    __align__(16) unsigned char records[KK_HELD * KK_SLOT];
    __align__(16) unsigned char node[2][KK_NODE];
    __align__(16) unsigned char call[KK_SLOT];  // the record of another block's call
    kk_u64 results[KK_HELD];
    kk_u64 result;  // of a node or a wide task
    volatile kk_u64 ready;  // tasks fetched ever: the reader's
    volatile kk_u64 done;  // tasks run ever: the workers'
    volatile kk_u64 told;  // tasks told to the host: the writer's
    volatile kk_u32 wide_calls, run_calls;  // seen by the reader
    volatile kk_u32 leave;  // the host wants the grid to end: the reader's
    volatile kk_u32 ended;  // no more tasks will be run: the workers'
    // the first worker's, for the others
    int todo;
    kk_u32 count, stop[2], node_at, next_node, seen_wide, seen_run, in_node;
    kk_u64 graph;
};
#define KK_TODO_TASKS 0
#define KK_TODO_WIDE 1
#define KK_TODO_JOIN 2
#define KK_TODO_END 3


// (tasks)

struct kk_Resident {
    kk_Block& block;
    kk_Grid& grid;
    unsigned char* traces;
    kk_u64 traced;  // entries ever
    KK_ARRAYS_STRUCT

    // Remember when something ran. The first worker.
    __device__ void trace(kk_u64 begun, kk_u32 task, kk_u32 what, kk_u64 number) {
#if KK_TIMELINE
        if (threadIdx.x == 0) {
            unsigned char* mine = traces + (kk_u64)blockIdx.x * (KK_LINE + KK_TIMELINE * 32ull);
            ulonglong4* entry = (ulonglong4*)(mine + KK_LINE) + traced % KK_TIMELINE;
            *entry = make_ulonglong4(begun, kk_trace_time(), (kk_u64)what << 32 | task, number);
            *(volatile kk_u64*)mine = ++traced;
        }
#endif
    }

    __device__ void run_task(const unsigned char* record, kk_u64* result) { kk_run_task(record, result KK_ARRAYS_PASS); }

    // --- wide tasks

    // Run this block's part of a call. All workers.
    __device__ void answer() {
        if (threadIdx.x < KK_SLOT / 16) ((uint4*)block.call)[threadIdx.x] = kk_fetch(&grid.wide_record[threadIdx.x]);
        kk_workers_meet();
        const kk_u64 begun = kk_trace_time();
        run_wide_part(block.call);
        trace(begun, *(const kk_u32*)block.call, KK_TRACED_WIDE | KK_PART, 0);
        if (threadIdx.x == 0) {
            kk_fence_grid();
            atomicAdd(&grid.wide_parts.value, 1u);
        }
    }

    __device__ void run_wide_part(const unsigned char* record) {
        if (threadIdx.x == 0) {
            kk_block_x = blockIdx.x;
            kk_blocks_x = gridDim.x;
        }
        kk_workers_meet();
        run_task(record, &grid.wide_result);
        kk_workers_meet();
        if (threadIdx.x == 0) {
            kk_block_x = 0;
            kk_blocks_x = 1;
        }
        kk_workers_meet();
    }

    // Whether another block has called since. The first worker.
    __device__ bool is_called() {
        const kk_u32 calls = kk_look(&grid.wide_calls.value);
        if (calls == block.seen_wide) return false;
        block.seen_wide = calls;
        kk_fence_grid();
        return true;
    }

    // Take a lock of the grid, and answer calls meanwhile. All workers.
    __device__ void take(kk_u32* lock) {
        for (;;) {
            if (threadIdx.x == 0) {
                bool called = false, taken = false;
                while (!(called = is_called()) && !(taken = atomicCAS(lock, 0u, 1u) == 0u)) __nanosleep(100);
                kk_fence_grid();
                block.todo = called ? KK_TODO_WIDE : KK_TODO_TASKS;
            }
            kk_workers_meet();
            const bool called = block.todo == KK_TODO_WIDE;
            kk_workers_meet();
            if (!called) return;
            answer();
        }
    }

    // Run a task with all blocks. All workers.
    __device__ void call_all(const unsigned char* record, kk_u64* result) {
        take(&grid.wide_lock.value);
        if (threadIdx.x < KK_SLOT / 16) grid.wide_record[threadIdx.x] = ((const uint4*)record)[threadIdx.x];
        kk_workers_meet();
        if (threadIdx.x == 0) {
            grid.wide_result = 0;
            kk_tell(&grid.wide_parts.value, 0u);
            kk_fence_grid();
            block.seen_wide = kk_look(&grid.wide_calls.value) + 1u;
            kk_tell(&grid.wide_calls.value, block.seen_wide);
        }
        run_wide_part(record);
        if (threadIdx.x == 0) {
            while (kk_look(&grid.wide_parts.value) != gridDim.x - 1) __nanosleep(20);
            kk_fence_grid();
            if (result) *result = *(volatile kk_u64*)&grid.wide_result;
            kk_tell(&grid.wide_lock.value, 0u);
        }
        kk_workers_meet();
    }

    // --- graphs

    // Work on a graph until all of it is run. All workers.
    __device__ void work_on(kk_Graph* graph) {
        const kk_u32 nodes = graph->nodes, number = kk_look(&grid.run_number.value);
        const unsigned char* all = (const unsigned char*)graph->node_records;
        const kk_u32* successors = (const kk_u32*)graph->successors;
        kk_u32* arrived = (kk_u32*)graph->arrived;
        kk_u64* queue = (kk_u64*)graph->queue;
        kk_u32 mine = 0;  // nodes run and not counted yet
        kk_u32 ticket = KK_NONE;
        for (;;) {
            if (threadIdx.x == 0) {  // wait for a node that is ready
                if (mine) {
                    kk_fence_grid();
                    atomicAdd(&graph->run.value, mine);
                    mine = 0;
                }
                block.node_at = KK_NONE;
                block.todo = KK_TODO_TASKS;
                if (ticket == KK_NONE) ticket = atomicAdd(&graph->popped.value, 1u);
                for (;;) {
                    if (ticket < nodes) {
                        const kk_u64 entry = kk_look(&queue[ticket]);
                        if ((kk_u32)(entry >> 32) == number) {
                            block.node_at = (kk_u32)entry;
                            ticket = KK_NONE;
                            break;
                        }
                    }
                    if (kk_look(&graph->run.value) == nodes) break;
                    if (is_called()) {
                        block.todo = KK_TODO_WIDE;
                        break;
                    }
                }
                kk_fence_grid();
            }
            kk_workers_meet();
            kk_u32 node = block.node_at;
            const bool called = block.todo == KK_TODO_WIDE;
            kk_workers_meet();
            if (called) {
                answer();
                continue;
            }
            if (node == KK_NONE) return;
            int side = 1;
            load_node(block.node[side], all, node);
            kk_workers_meet();
            while (node != KK_NONE) {  // and with what it makes ready, as long as that is something
                const kk_Node* head = (const kk_Node*)block.node[side];
                const unsigned char* record = block.node[side] + 16;
                const kk_u32 next = head->next;
                const bool wide = *(const kk_u32*)record & KK_WIDE;
                uint4 ahead;
                if (next != KK_NONE && !wide && threadIdx.x < KK_NODE / 16)
                    ahead = kk_fetch((const uint4*)(all + (kk_u64)next * KK_NODE) + threadIdx.x);
                if (threadIdx.x == 0) {
                    block.in_node = node + 1;
                    block.next_node = KK_NONE;
                }
                const kk_u64 begun = kk_trace_time();
                if (wide) {
                    call_all(record, 0);
                } else {
                    run_task(record, &block.result);
                }
                mine++;
                trace(begun, *(const kk_u32*)record, KK_IN_GRAPH | wide, node);
                if (next != KK_NONE) {
                    if (!wide && threadIdx.x < KK_NODE / 16) ((uint4*)block.node[side ^ 1])[threadIdx.x] = ahead;
                    kk_workers_meet();
                    if (wide) {
                        load_node(block.node[side ^ 1], all, next);
                        kk_workers_meet();
                    }
                    side ^= 1;
                    node = next;
                    continue;
                }
                kk_workers_meet();
                const kk_u32 first = head->first, count = head->successors;
                if (count) kk_fence_grid();
                for (kk_u32 i = threadIdx.x; i < count; i += KK_THREADS) {
                    const kk_u32 one = successors[first + i];
                    const kk_u32 wanted = ((const kk_Node*)(all + (kk_u64)one * KK_NODE))->wanted;
                    if (wanted > 1 && atomicAdd(&arrived[one], 1u) + 1u != wanted * number) continue;
                    if (atomicCAS(&block.next_node, KK_NONE, one) == KK_NONE) continue;  // this block goes on with it
                    const kk_u32 at = atomicAdd(&graph->pushed.value, 1u);
                    kk_fence_grid();
                    kk_tell(&queue[at], (kk_u64)number << 32 | one);
                }
                if (count) kk_fence_grid();
                kk_workers_meet();
                node = block.next_node;
                if (node != KK_NONE) {
                    load_node(block.node[side ^= 1], all, node);
                    kk_workers_meet();
                }
            }
        }
    }

    __device__ void load_node(unsigned char* into, const unsigned char* all, kk_u32 node) {
        if (threadIdx.x < KK_NODE / 16)
            ((uint4*)into)[threadIdx.x] = kk_fetch((const uint4*)(all + (kk_u64)node * KK_NODE) + threadIdx.x);
    }

    // Run a whole graph, with those blocks that join. All workers.
    __device__ void run_graph(const unsigned char* record) {
        kk_Graph* graph = (kk_Graph*)*(const kk_u64*)(record + 8);
        take(&grid.run_lock.value);
        const kk_u32 number = kk_look(&graph->runs) + 1u;
        kk_u64* queue = (kk_u64*)graph->queue;
        for (kk_u32 i = threadIdx.x; i < graph->roots; i += KK_THREADS) kk_tell(&queue[i], (kk_u64)number << 32 | i);
        kk_workers_meet();
        if (threadIdx.x == 0) {
            kk_tell(&graph->runs, number);
            kk_tell(&graph->pushed.value, graph->roots);
            kk_tell(&graph->popped.value, 0u);
            kk_tell(&graph->run.value, 0u);
            kk_tell(&grid.run_number.value, number);
            kk_tell(&grid.run_graph.value, (kk_u64)graph);
            kk_tell(&grid.run_left.value, 0u);
        }
        kk_fence_grid();
        kk_workers_meet();
        if (threadIdx.x == 0) {
            kk_fence_grid();
            block.seen_run = (kk_u32)(kk_look(&grid.run.value) >> 32) + 1u;
            kk_tell(&grid.run.value, (kk_u64)block.seen_run << 32 | KK_RUN_OPEN);
        }
        kk_workers_meet();
        work_on(graph);
        if (threadIdx.x == 0) {
            const kk_u64 joined = atomicAnd(&grid.run.value, ~KK_RUN_OPEN) & 0x7fffffffu;
            while (kk_look(&grid.run_left.value) != joined) __nanosleep(20);
            kk_fence_grid();
            kk_tell(&grid.run_lock.value, 0u);
        }
        kk_workers_meet();
    }

    // Join the graph that another block runs, unless it has ended. All workers.
    __device__ void join() {
        if (threadIdx.x == 0) {
            kk_u64 seen = kk_look(&grid.run.value);
            block.todo = KK_TODO_TASKS;
            while (seen & KK_RUN_OPEN) {
                const kk_u64 found = atomicCAS(&grid.run.value, seen, seen + 1);
                if (found == seen) {
                    block.todo = KK_TODO_JOIN;
                    break;
                }
                seen = found;
            }
            block.seen_run = (kk_u32)(seen >> 32);
            kk_fence_grid();
            block.graph = kk_look(&grid.run_graph.value);
        }
        kk_workers_meet();
        const bool joined = block.todo == KK_TODO_JOIN;
        kk_Graph* graph = (kk_Graph*)block.graph;
        kk_workers_meet();
        if (!joined) return;
        work_on(graph);
        if (threadIdx.x == 0) {
            kk_fence_grid();
            atomicAdd(&grid.run_left.value, 1u);
        }
        kk_workers_meet();
    }

    // --- the workers

    __device__ void work(kk_u64 done) {
        bool leaving = false;
        for (;;) {
            if (threadIdx.x == 0) {
                int todo = -1, spins = 0;
                while (todo < 0) {
                    const kk_u64 ready = block.ready;
                    const bool leave = block.leave;
                    if (!leave && ready != done) {
                        todo = KK_TODO_TASKS;
                        block.count = (kk_u32)(ready - done);
                    } else if ((leave || (int)(block.wide_calls - block.seen_wide) > 0) && is_called()) {
                        todo = KK_TODO_WIDE;
                    } else if (leave) {
                        // All blocks stay until none can call another.
                        if (!leaving) atomicAdd(&grid.leaving.value, 1u);
                        leaving = true;
                        if (kk_look(&grid.leaving.value) == gridDim.x) todo = KK_TODO_END;
                    } else if ((int)(block.run_calls - block.seen_run) > 0) {
                        todo = KK_TODO_JOIN;
                    } else if (++spins > 2000) {
                        __nanosleep(200);
                    }
                }
                kk_fence_block();
                block.todo = todo;
            }
            kk_workers_meet();
            const int todo = block.todo;
            const kk_u32 count = block.count;
            if (todo != KK_TODO_TASKS) kk_workers_meet();  // behind tasks there is one anyway
            if (todo == KK_TODO_END) return;
            if (todo == KK_TODO_WIDE) {
                answer();
                continue;
            }
            if (todo == KK_TODO_JOIN) {
                join();
                continue;
            }
            for (kk_u32 i = 0; i < count; i++) {
                const kk_u32 at = (kk_u32)done % KK_HELD;
                const unsigned char* record = block.records + at * KK_SLOT;
                const kk_u32 task = *(const kk_u32*)record;
                const bool wide = task & KK_WIDE;
                const kk_u64 begun = kk_trace_time();
                if (task == KK_GRAPH) {
                    run_graph(record);
                } else if (wide) {
                    call_all(record, &block.results[at]);
                } else {
                    run_task(record, &block.results[at]);
                }
                done++;
                if (threadIdx.x == 0) block.stop[i & 1] = block.leave;
                kk_workers_meet();
                if (threadIdx.x == 0) {
                    kk_fence_block();
                    block.done = done;
                }
                trace(begun, task, wide, done);
                if (block.stop[i & 1]) break;
            }
        }
    }
};

// --- the reader

static __device__ void kk_read(kk_Block& block, kk_Grid& grid, const unsigned char* ring, kk_u64 ready) {
    const kk_u32 lane = threadIdx.x % 32;
    const unsigned char* slots = ring + KK_SLOTS_AT + (kk_u64)blockIdx.x * KK_CAPACITY * KK_SLOT;
    const kk_u64* words[4] = {(const kk_u64*)(ring + KK_LINE * (1 + 2 * blockIdx.x)), (const kk_u64*)ring, &grid.run.value, 0};
    const kk_u64* word = words[lane < 3 ? lane : 0];
    kk_u32 idle = 0;
    while (!__shfl_sync(KK_ALL, block.ended, 0)) {
        kk_u64 seen = 0;
        kk_u32 calls = 0;
        if (lane < 3) seen = kk_look_system(word);
        if (lane == 3) calls = kk_look(&grid.wide_calls.value);
        const kk_u64 head = __shfl_sync(KK_ALL, seen, 0), command = __shfl_sync(KK_ALL, seen, 1), run = __shfl_sync(KK_ALL, seen, 2);
        calls = __shfl_sync(KK_ALL, calls, 3);
        if (lane == 0) {
            if (calls != block.wide_calls) block.wide_calls = calls;
            if (run & KK_RUN_OPEN) block.run_calls = (kk_u32)(run >> 32);
            if (command == KK_COMMAND_EXIT) block.leave = 1;
        }
        const kk_u64 told = __shfl_sync(KK_ALL, (kk_u64)block.told, 0);
        kk_u64 room = KK_HELD - (ready - told), count = head - ready;
        if (count > room) count = room;
        if (command == KK_COMMAND_EXIT) count = 0;
        if (count) {
            idle = 0;
            kk_fence_system();  // the records are read after the head
            const kk_u32 pieces = (kk_u32)count * (KK_SLOT / 16);
            for (kk_u32 base = 0; base < pieces; base += 128) {
                uint4 got[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const kk_u32 piece = base + k * 32 + lane;
                    const kk_u64 one = ready + piece / (KK_SLOT / 16);
                    if (piece < pieces)
                        got[k] = kk_fetch((const uint4*)(slots + one % KK_CAPACITY * KK_SLOT) + piece % (KK_SLOT / 16));
                }
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const kk_u32 piece = base + k * 32 + lane;
                    const kk_u64 one = ready + piece / (KK_SLOT / 16);
                    if (piece < pieces) ((uint4*)(block.records + one % KK_HELD * KK_SLOT))[piece % (KK_SLOT / 16)] = got[k];
                }
            }
            ready += count;
            kk_fence_block();
            __syncwarp();
            if (lane == 0) {
                kk_fence_block();
                block.ready = ready;
            }
        } else if (head == ready && ++idle > KK_SPINS) {
            // Nothing for a while: look less often, but notice calls of other blocks.
            const kk_u32 naps = idle - KK_SPINS < KK_NAPS ? idle - KK_SPINS : KK_NAPS;
            if (lane == 0) {
                for (kk_u32 k = 0; k < naps && !block.ended; k++) {
                    if (kk_look(&grid.wide_calls.value) != calls || kk_look(&grid.run.value) != run) break;
                    __nanosleep(500);
                }
            }
            __syncwarp();
        }
    }
}

// --- the writer

static __device__ void kk_write(kk_Block& block, unsigned char* ring, kk_u64 told) {
    const kk_u32 lane = threadIdx.x % 32;
    kk_u64* line = (kk_u64*)(ring + KK_LINE * (2 + 2 * blockIdx.x));
    kk_u64* results = (kk_u64*)(ring + KK_RESULTS_AT + (kk_u64)blockIdx.x * KK_CAPACITY * 16);
    kk_u64 beaten = 0, watched = ~0ull;
    kk_u32 idle = 0;
    for (;;) {
        const bool ended = __shfl_sync(KK_ALL, (kk_u32)block.ended, 0);
        const kk_u64 done = __shfl_sync(KK_ALL, (kk_u64)block.done, 0);
        if (done != told) {
            idle = 0;
            if (lane == 0) kk_fence_system();  // what the tasks wrote is visible before they count as done
            __syncwarp();
#if KK_RESULTS
            for (kk_u64 i = told + lane; i < done; i += 32) {
                const kk_u64 value = block.results[i % KK_HELD], tag = (i + 1) << 32;
                block.results[i % KK_HELD] = 0;
                kk_u64* words = results + i % KK_CAPACITY * 2;
                asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(words), "l"(tag | (kk_u32)value), "l"(tag | value >> 32)
                             : "memory");
            }
            kk_fence_block();
            __syncwarp();
#endif
            told = done;
            if (lane == 0) {
                kk_tell_system(line, done);
                kk_fence_block();
                block.told = told;
            }
        } else {
            if (ended) break;
            if (lane == 0) {
                const kk_u64 now = kk_nanoseconds();
                if (now - beaten > KK_BEAT_NANOSECONDS) {
                    const bool busy = block.ready != done;
                    kk_tell_system(line + 1, now);
                    kk_tell_system(line + 2, busy ? done + 1 : 0);
                    if (done != watched) kk_tell_system(line + 3, now);
                    if (!busy) watched = ~0ull;
                    else watched = done;
                    beaten = now;
                }
                if (++idle > 1000) __nanosleep(100);
            }
            __syncwarp();
        }
    }
}

extern "C" __global__ void __launch_bounds__(KK_THREADS + 64, 1)
kk_entry_resident(const kk_u64 kk_ring, const kk_u64 kk_grid, const kk_u64 kk_traces KK_ARRAYS_DECLARE) {
    __shared__ kk_Block block;
    unsigned char* ring = (unsigned char*)kk_ring;
    kk_Grid& grid = *(kk_Grid*)kk_grid;
    if (threadIdx.x == 0) {
        block.ready = block.done = block.told = kk_look_system((const kk_u64*)(ring + KK_LINE * (2 + 2 * blockIdx.x)));
        block.wide_calls = block.run_calls = block.seen_wide = block.seen_run = block.leave = block.ended = block.in_node = 0;
        block.count = 0;
        kk_block_x = 0;
        kk_blocks_x = 1;
    }
    for (kk_u32 i = threadIdx.x; i < KK_HELD; i += KK_THREADS + 64) block.results[i] = 0;
    __syncthreads();
    const kk_u64 done = block.done;
    __syncthreads();
    if (threadIdx.x < KK_THREADS) {
        unsigned char* traces = (unsigned char*)kk_traces;
        kk_u64 traced = 0;
#if KK_TIMELINE
        traced = *(const kk_u64*)(traces + (kk_u64)blockIdx.x * (KK_LINE + KK_TIMELINE * 32ull));
#endif
        kk_Resident resident = {block, grid, traces, traced KK_ARRAYS_PASS};
        resident.work(done);
        kk_workers_meet();
        if (threadIdx.x == 0) {
            kk_fence_block();
            block.ended = 1;
        }
    } else if (threadIdx.x < KK_THREADS + 32) {
        kk_read(block, grid, ring, done);
    } else {
        kk_write(block, ring, done);
    }
}
