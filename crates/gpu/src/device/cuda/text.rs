//! The text of kernels that only a GPU has: what decides in a graph, what copies as much as is used, and the persistent
//! kernel, which is made of the text of the others.

use crate::device::{Argument, Launch, Number};
use crate::program;
use std::fmt::Write as _;

/// Blocks of `copy_used`.
pub const COPY_BLOCKS: u32 = 64;

/// Kernels of graphs. The alias of the handle needs no header: NVRTC knows it.
const GRAPH: &str = r#"
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);

extern "C" __global__ void set_condition(u64 handle, const u8 *keep, u32 index)
{
    if (threadIdx.x == 0) {
        cudaGraphSetConditional(handle, keep[index] != 0 ? 1 : 0);
    }
}

extern "C" __global__ void copy_used(const u8 *from, u8 *to, const u32 *used, u32 index, u32 scale, u64 most)
{
    const u64 asked = (u64)used[index] * scale, bytes = asked < most ? asked : most;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    const bool is_aligned = (((u64)from | (u64)to) & 3) == 0;
    const u64 words = is_aligned ? bytes / 4 : 0;
    for (u64 at = first; at < words; at += step) {
        ((u32 *)to)[at] = ((const u32 *)from)[at];
    }
    for (u64 at = 4 * words + first; at < bytes; at += step) {
        to[at] = from[at];
    }
}
"#;

/// What stands before the other kernels in the text of the persistent one: they are functions there, and the block that
/// they work for is not the one that they are in.
const BEFORE: &str = "
struct VirtualIndex {
    unsigned int x, y, z;
};
static __shared__ VirtualIndex virtual_block, virtual_grid;
";

const AFTER: &str = r"
// An address that is an array of any type.
struct Address {
    u64 bits;
    template <typename T> __device__ operator T *() const { return (T *)bits; }
};

static __device__ unsigned long long barrier_arrivals;
static __device__ volatile u32 has_ended;

// All threads of the grid; all its blocks are on the device at the same time.
static __device__ void grid_barrier()
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const u64 blocks = gridDim.x;
        const u64 target = (atomicAdd(&barrier_arrivals, 1ull) / blocks + 1) * blocks;
        while (*(volatile unsigned long long *)&barrier_arrivals < target) {
        }
        __threadfence();
    }
    __syncthreads();
}

static __device__ bool has_come(u32 flag, u32 value)
{
    return flag - value < 0x80000000u;
}

// The first thread of the grid waits until there is a turn, or the end.
static __device__ void wait_for_turn(volatile u32 *arrived, volatile u32 *returned, volatile u32 *stop, u32 turn, u32 sets)
{
    while (*stop == 0 && !(has_come(*arrived, turn) && has_come(*returned, turn - sets))) {
        __nanosleep(200);
    }
    has_ended = *stop;
    __threadfence_system();
}

static __device__ void fill_bytes(u8 *what, u64 bytes, u32 byte)
{
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += (u64)gridDim.x * blockDim.x) {
        what[at] = (u8)byte;
    }
}

static __device__ void copy_bytes(const u8 *from, volatile u8 *to, u64 bytes)
{
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += (u64)gridDim.x * blockDim.x) {
        to[at] = from[at];
    }
    __threadfence_system();
}

#define EACH_BLOCK(grid_x, grid_y, call)                                                                               \
    for (u64 block = blockIdx.x; block < (u64)(grid_x) * (grid_y); block += gridDim.x) {                               \
        __syncthreads();                                                                                               \
        if (threadIdx.x == 0) {                                                                                        \
            virtual_block.x = (u32)(block % (grid_x));                                                                 \
            virtual_block.y = (u32)(block / (grid_x));                                                                 \
            virtual_grid.x = (grid_x);                                                                                 \
            virtual_grid.y = (grid_y);                                                                                 \
        }                                                                                                              \
        __syncthreads();                                                                                               \
        call;                                                                                                          \
    }                                                                                                                  \
    grid_barrier()
";

/// A step of a turn of the persistent kernel, with addresses of the device in all turns.
pub enum TurnStep {
    /// The kernel; the addresses of its arrays in each turn, in their order.
    Launch(Launch, Vec<Vec<u64>>),
    /// Where, in each turn; bytes; the byte.
    Fill(Vec<u64>, usize, u8),
    /// From where and to where, in each turn; bytes.
    CopyOut(Vec<(u64, u64)>, usize),
}

/// The kernels, and those of graphs.
pub fn of_graphs() -> String {
    program::text() + GRAPH
}

/// The persistent kernel. Its arguments are the flags `arrived`, `returned`, `worked` and `stop`.
pub fn persistent(steps: &[TurnStep], turns: usize, first: u32, sets: u32) -> String {
    let kernels = program::text()
        .replace("extern \"C\" __global__ void", "static __device__ void")
        .replace("blockIdx", "virtual_block")
        .replace("gridDim", "virtual_grid");
    let (mut tables, mut body) = (String::new(), String::new());
    let mut address = |of_turns: Vec<u64>| {
        let number = tables.matches("ADDRESSES_").count();
        let list: Vec<String> = of_turns.iter().map(|address| format!("{address}ull")).collect();
        let _ = writeln!(tables, "static __device__ const u64 ADDRESSES_{number}[{turns}] = {{{}}};", list.join(", "));
        format!("Address{{ADDRESSES_{number}[slot]}}")
    };
    for step in steps {
        let line = match step {
            TurnStep::Launch(launch, addresses) => {
                let mut arrays = (0..).map(|n| addresses.iter().map(|turn| turn[n]).collect());
                let mut argument = |argument: &Argument| match argument {
                    Argument::Number(number) => literal(*number),
                    _ => address(arrays.next().unwrap_or_default()),
                };
                let arguments: Vec<String> = launch.arguments.iter().map(&mut argument).collect();
                let (x, y) = launch.grid;
                format!("EACH_BLOCK({x}u, {y}u, {}({}));", launch.kernel, arguments.join(", "))
            }
            TurnStep::Fill(at, bytes, byte) => {
                format!("fill_bytes({}, {bytes}ull, {byte}u);\n        grid_barrier();", address(at.clone()))
            }
            TurnStep::CopyOut(places, bytes) => {
                let from = address(places.iter().map(|(from, _)| *from).collect());
                let to = address(places.iter().map(|(_, to)| *to).collect());
                format!("copy_bytes({from}, {to}, {bytes}ull);\n        grid_barrier();")
            }
        };
        let _ = writeln!(body, "        {line}");
    }
    format!(
        r#"{BEFORE}{kernels}{AFTER}
{tables}
extern "C" __global__ void persistent(volatile u32 *arrived, volatile u32 *returned, volatile u32 *worked, volatile u32 *stop)
{{
    for (u32 n = 0;; n++) {{
        const u32 turn = {first}u + n + 1, slot = n % {turns}u;
        if (blockIdx.x == 0 && threadIdx.x == 0) {{
            wait_for_turn(arrived, returned, stop, turn, {sets}u);
        }}
        grid_barrier();
        if (has_ended != 0) {{
            return;
        }}
{body}        if (blockIdx.x == 0 && threadIdx.x == 0) {{
            __threadfence_system();
            *worked = turn;
        }}
    }}
}}
"#
    )
}

fn literal(number: Number) -> String {
    match number {
        Number::I16(n) => format!("(i16)({n})"),
        Number::U16(n) => format!("(u16){n}u"),
        // The lowest number has no literal.
        Number::I32(n) => format!("(i32){}u", n as u32),
        Number::U32(n) => format!("{n}u"),
        Number::U64(n) => format!("{n}ull"),
        Number::F32(n) => format!("__uint_as_float({}u)", n.to_bits()),
    }
}
