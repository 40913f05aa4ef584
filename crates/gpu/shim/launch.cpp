// The kernels as C++, and the call that launches one by its name.
#include "shim.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "kernels.hpp"

#include "faults.cu"

namespace shim {

thread_local Launch launch;
thread_local Index thread_index, block_index, block_size, grid_size;

// Bytes for the stack of a fibre.
constexpr std::size_t STACK_BYTES = 64 * 1024;

void fail(const char *what, long long detail)
{
    std::snprintf(launch.error, sizeof launch.error, "block (%u, %u): %s %lld", block_index.x, block_index.y, what, detail);
    _longjmp(launch.scheduler, 1);
}

void barrier(int line)
{
    Fibre *own = launch.current;
    own->state = Fibre::WAITING;
    own->barrier_line = line;
    if (_setjmp(own->jump) == 0) {
        _longjmp(launch.scheduler, 1);
    }
}

static void enter()
{
    launch.body(launch.arguments);
    launch.current->state = Fibre::ENDED;
    _longjmp(launch.scheduler, 1);
}

// Numbers 0 .. count in the order that a launch asks for: 0 upwards, 1 downwards, otherwise mixed by this seed.
static std::vector<unsigned> in_order(unsigned count, std::uint64_t order, std::uint64_t round)
{
    std::vector<unsigned> numbers(count);
    for (unsigned n = 0; n < count; n++) {
        numbers[n] = order == 1 ? count - 1 - n : n;
    }
    std::uint64_t state = (order + 1) * 0x9E3779B97F4A7C15ull ^ (round + 1) * 0xD1B54A32D192ED03ull;
    for (unsigned n = count; order > 1 && n > 1; n--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::swap(numbers[n - 1], numbers[state % n]);
    }
    return numbers;
}

static void resume(unsigned number)
{
    Fibre *fibre = launch.fibres[number].get();
    launch.current = fibre;
    launch.thread = (launch.block - 1) * launch.threads + number + 1;
    thread_index = fibre->thread;
    const bool is_new = fibre->state == Fibre::NEW;
    fibre->state = Fibre::READY;
    if (_setjmp(launch.scheduler) == 0) {
        if (is_new) {
            setcontext(&fibre->context);
        }
        _longjmp(fibre->jump, 1);
    }
}

// Runs the threads of a block from barrier to barrier until all have ended. False if the launch has failed.
static bool run_block(std::uint64_t order)
{
    const unsigned threads = (unsigned)launch.threads;
    for (unsigned n = 0; n < threads; n++) {
        Fibre &fibre = *launch.fibres[n];
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = fibre.stack.size();
        fibre.context.uc_link = nullptr;
        fibre.state = Fibre::NEW;
        makecontext(&fibre.context, enter, 0);
    }
    for (std::uint64_t round = 0;; round++, launch.moment++) {
        for (unsigned n : in_order(threads, order, round + launch.block)) {
            resume(n);
            if (launch.error[0] != 0) {
                return false;
            }
        }
        const Fibre &first = *launch.fibres[0];
        for (unsigned n = 1; n < threads; n++) {
            const Fibre &other = *launch.fibres[n];
            if (other.state != first.state || (other.state == Fibre::WAITING && other.barrier_line != first.barrier_line)) {
                std::snprintf(launch.error, sizeof launch.error,
                              "block (%u, %u): thread %u does not arrive at the barrier of thread 0, or the reverse",
                              block_index.x, block_index.y, n);
                return false;
            }
        }
        if (first.state == Fibre::ENDED) {
            launch.moment++;
            return true;
        }
    }
}

// An argument of a launch, as crates/gpu/src/sys.rs has it.
struct Argument {
    void *data;
    std::uint64_t count;
    std::uint32_t element_bytes;
    // 0 = array that is read, 1 = array that is written, 2 = number.
    std::uint32_t kind;
    std::uint64_t bits;
};

template <typename T> struct Take {
    static bool fits(const Argument &argument) { return argument.kind == 2 && argument.element_bytes == sizeof(T); }
    static T take(const Argument &argument, std::vector<Access> &)
    {
        T value;
        std::memcpy(&value, &argument.bits, sizeof value);
        return value;
    }
};
template <typename T> struct Take<Span<T>> {
    static bool fits(const Argument &argument)
    {
        return argument.kind == (std::is_const_v<T> ? 0 : 1) && argument.element_bytes == sizeof(T);
    }
    static Span<T> take(const Argument &argument, std::vector<Access> &accesses)
    {
        accesses.resize(std::is_const_v<T> ? 0 : argument.count);
        return {static_cast<T *>(argument.data), std::is_const_v<T> ? nullptr : accesses.data(), argument.count};
    }
};

template <typename... A> struct Call {
    void (*kernel)(A...);
    std::tuple<A...> arguments;
};

template <typename... A, std::size_t... N>
static bool run_kernel(void (*kernel)(A...), std::index_sequence<N...>, const Argument *given, std::size_t count,
                       std::uint64_t order)
{
    if (count != sizeof...(A) || !(Take<A>::fits(given[N]) && ...)) {
        std::snprintf(launch.error, sizeof launch.error, "the kernel takes %zu arguments of other types", sizeof...(A));
        return false;
    }
    std::vector<Access> accesses[sizeof...(A)];
    const Call<A...> call{kernel, {Take<A>::take(given[N], accesses[N])...}};
    launch.arguments = &call;
    launch.body = [](const void *arguments) {
        const auto *call = static_cast<const Call<A...> *>(arguments);
        std::apply(call->kernel, call->arguments);
    };
    const unsigned blocks = grid_size.x * grid_size.y;
    for (unsigned block : in_order(blocks, order, 0)) {
        block_index = {block % grid_size.x, block / grid_size.x, 0};
        launch.block = block + 1;
        if (!run_block(order)) {
            return false;
        }
    }
    return true;
}

template <auto kernel> struct Runner;
template <typename... A, void (*kernel)(A...)> struct Runner<kernel> {
    static bool run(const Argument *given, std::size_t count, std::uint64_t order)
    {
        return run_kernel(kernel, std::index_sequence_for<A...>{}, given, count, order);
    }
};

struct Entry {
    const char *name;
    bool (*run)(const Argument *, std::size_t, std::uint64_t);
};

#define ENTRY(name) {#name, Runner<name>::run}
static const Entry ENTRIES[] = {
    KERNELS, ENTRY(fault_outside), ENTRY(fault_barrier), ENTRY(fault_race), ENTRY(fault_blocks), ENTRY(fault_old_memory),
    ENTRY(probe_big),
};

} // namespace shim

// Launches a kernel. Returns 0, or 1 with the reason in `error` (ended by 0).
extern "C" int konkordia_gpu_shim_launch(const char *name, unsigned grid_x, unsigned grid_y, unsigned threads,
                                         unsigned long long order, const shim::Argument *arguments, std::size_t count,
                                         char *error, std::size_t error_bytes)
{
    using namespace shim;
    for (const Entry &entry : ENTRIES) {
        if (std::strcmp(entry.name, name) != 0) {
            continue;
        }
        while (launch.fibres.size() < threads) {
            auto fibre = std::make_unique<Fibre>();
            fibre->stack.resize(STACK_BYTES);
            launch.fibres.push_back(std::move(fibre));
        }
        for (unsigned n = 0; n < threads; n++) {
            launch.fibres[n]->thread = {n, 0, 0};
        }
        launch.threads = threads;
        launch.moment = 1;
        launch.error[0] = 0;
        launch.shared.clear();
        block_size = {threads, 1, 1};
        grid_size = {grid_x, grid_y, 1};
        const bool done = entry.run(arguments, count, order);
        std::snprintf(error, error_bytes, "%s", launch.error);
        return done ? 0 : 1;
    }
    std::snprintf(error, error_bytes, "there is no kernel of this name");
    return 1;
}
