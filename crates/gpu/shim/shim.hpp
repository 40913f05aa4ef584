// Runs the text of the kernels on the host: the threads of a block are fibres of one thread of the host, blocks
// follow one another. In the place of pointers the kernels get spans that check every access. A launch fails if
// - an access is outside its array;
// - some threads of a block wait at a barrier and others wait at another one or have ended;
// - two threads use an element without a barrier between them, and one of them writes it: in the shared memory of
//   a block, or in an array of the launch. For each element the last write and the last reads are known, so a
//   read that lies several barriers back in another block may be missed.
//
// Shared memory begins with bytes 0xA5 in every block. Threads run in the order that the launch asks for.
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define KONKORDIA_SHIM 1
#define __device__
#define __global__

namespace shim {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

// Who used an element last. A thread is known by its number in the grid + 1; a moment by the number of barriers
// that all blocks had so far.
struct Access {
    static constexpr std::uint64_t MANY = ~0ull;
    std::uint64_t writer = 0, written = 0, reader = 0, read = 0;
};

struct Fibre {
    enum State { NEW, READY, WAITING, ENDED } state = READY;
    // Where it begins, and where it goes on: a jump costs no system call.
    ucontext_t context{};
    std::jmp_buf jump;
    std::vector<char> stack;
    int barrier_line = 0;
    Index thread;
};

// What one thread of the host knows of the launch that it runs.
struct Launch {
    std::jmp_buf scheduler;
    std::vector<std::unique_ptr<Fibre>> fibres;
    Fibre *current = nullptr;
    void (*body)(const void *) = nullptr;
    const void *arguments = nullptr;
    std::uint64_t thread = 0, moment = 1, block = 0, threads = 1;
    char error[256] = "";
    struct Memory {
        std::vector<unsigned char> bytes;
        std::vector<Access> accesses;
        std::uint64_t block = 0;
    };
    std::map<int, Memory> shared;
};

extern thread_local Launch launch;
extern thread_local Index thread_index, block_index, block_size, grid_size;

[[noreturn]] void fail(const char *what, long long detail);
void barrier(int line);

inline bool is_race(std::uint64_t other, std::uint64_t moment)
{
    if (other == 0 || other == launch.thread) {
        return false;
    }
    const bool same_block = other != Access::MANY && (other - 1) / launch.threads == launch.block - 1;
    return moment == launch.moment || (!same_block && other != Access::MANY);
}

inline void note_read(Access &access)
{
    if (is_race(access.writer, access.written)) {
        fail("a thread reads what another writes, without a barrier between them; thread", launch.thread - 1);
    }
    const bool others = access.read == launch.moment && access.reader != launch.thread && access.reader != 0;
    access.reader = others ? Access::MANY : launch.thread;
    access.read = launch.moment;
}

inline void note_write(Access &access)
{
    if (is_race(access.writer, access.written)) {
        fail("two threads write one element without a barrier between them; thread", launch.thread - 1);
    }
    if (is_race(access.reader, access.read)) {
        fail("a thread writes what another reads, without a barrier between them; thread", launch.thread - 1);
    }
    access.writer = launch.thread;
    access.written = launch.moment;
}

template <typename T> struct Place {
    T *value;
    Access *access;
};

// An element that is read or written.
template <typename T> struct Ref {
    Place<T> place;
    operator T() const
    {
        note_read(*place.access);
        return *place.value;
    }
    Ref &operator=(T value)
    {
        note_write(*place.access);
        *place.value = value;
        return *this;
    }
    Ref &operator=(const Ref &other) { return *this = T(other); }
    Place<T> operator&() const { return place; }
};

// An array of `count` elements; const ones have no accesses, because nobody writes them.
template <typename T> struct Span {
    T *data = nullptr;
    Access *accesses = nullptr;
    std::uint64_t count = 0;
    Span() = default;
    Span(std::nullptr_t) {}
    Span(T *data, Access *accesses, std::uint64_t count) : data(data), accesses(accesses), count(count) {}
    operator Span<const T>() const { return {data, accesses, count}; }
    Span operator+(std::uint64_t skip) const
    {
        if (skip > count) {
            fail("an array begins outside of another, at element", (long long)skip);
        }
        return {data + skip, accesses ? accesses + skip : nullptr, count - skip};
    }
    auto operator[](std::uint64_t at) const
    {
        if (at >= count) {
            fail("an access outside of an array, at element", (long long)at);
        }
        if constexpr (std::is_const_v<T>) {
            if (accesses) {
                note_read(accesses[at]);
            }
            return std::remove_const_t<T>(data[at]);
        } else {
            return Ref<T>{{data + at, accesses + at}};
        }
    }
};

// The shared memory of a block that one line of a kernel declares.
template <typename T> Span<T> shared(int site, std::uint64_t count)
{
    Launch::Memory &memory = launch.shared[site];
    if (memory.block != launch.block) {
        memory.block = launch.block;
        memory.bytes.assign(count * sizeof(T), 0xA5);
        memory.accesses.assign(count, Access{});
    }
    return {reinterpret_cast<T *>(memory.bytes.data()), memory.accesses.data(), count};
}

// Other atomics and plain accesses of the same element in one launch are not compared.
template <typename T> T atomic_add(Place<T> place, T more)
{
    const T before = *place.value;
    *place.value = before + more;
    return before;
}

} // namespace shim

#define PTR(T) shim::Span<T>
#define SHARED(T, name, count) const shim::Span<T> name = shim::shared<T>(__COUNTER__, count)
#define __syncthreads() shim::barrier(__LINE__)
#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

inline float __uint_as_float(unsigned bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline double __longlong_as_double(long long bits)
{
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline long long __double_as_longlong(double value)
{
    long long bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline unsigned atomicAdd(shim::Place<unsigned> place, unsigned more) { return shim::atomic_add(place, more); }
