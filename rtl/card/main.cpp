// A stand-in for a card: the logic of rtl/src/card.sv, simulated, with the memory of the card, and DMA into memory that
// `konkordia card` has made (docs/fpga.md, "A card").
//
//     card FRAMES ADDRESS [SEED]
//
// FRAMES has Ethernet frames, each behind its length (u32, little-endian); ADDRESS is what konkordia prints:
// PROCESS/FILE/NUMBER. Registers, tables and constants of the logic stand in the memory of konkordia. With SEED, memory,
// DMA and line stall at random clocks.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr std::size_t BEAT = 64, HEAD = 4096, CONSTANT_BYTES = 408;
// Places in the memory of konkordia, behind its head (crates/fabric/src/card.rs).
constexpr std::size_t REGISTERS = 0, RELEASED = 128, STOP = 136, STATE = 256, CLOCKS = 264, FRAME_COUNTS = 320,
                      PACKET_COUNTS = 400, LOGIC = 512, ROW_BYTES = 16, ENTRY_BYTES = 32, RING_HEAD = 128;
constexpr std::size_t RING_OPEN = 72;
constexpr uint64_t RUNNING = 1, ENDED = 2, VERSION = 2;
// A run without any movement for so many clocks is over.
constexpr uint64_t QUIET_CLOCKS = 3000;
constexpr uint64_t WAIT_US = 50, STUCK_US = 60'000'000;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

// Memory that konkordia has made, found by its address.
class Host {
public:
    explicit Host(const std::string& address) {
        std::istringstream parts(address);
        std::string process, file, number;
        std::getline(parts, process, '/');
        std::getline(parts, file, '/');
        std::getline(parts, number);
        const std::string path = "/proc/" + process + "/fd/" + file;
        fd_ = open(path.c_str(), O_RDWR);
        struct stat about {};
        if (fd_ < 0 || fstat(fd_, &about) != 0) fail(path + " cannot be opened");
        bytes_ = static_cast<std::size_t>(about.st_size);
        void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (start == MAP_FAILED) fail(path + " cannot be mapped");
        start_ = static_cast<uint8_t*>(start);
        if (std::memcmp(start_, "KONKSHM1", 8) != 0 || bytes_ < HEAD + 4096) fail(path + " is no memory of konkordia");
    }

    // Holds the ring as its writer, so that konkordia sees when this program has gone.
    void hold(std::size_t ring) {
        struct flock lock {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = static_cast<off_t>(HEAD + ring);
        lock.l_len = 1;
        if (fcntl(fd_, F_OFD_SETLK, &lock) != 0) fail("another card writes this ring");
        if (load(ring + RING_OPEN) != 1) fail("konkordia takes no frames any more");
    }

    // What DMA writes; the logic must not write anywhere else than into entries and slots.
    void write(std::size_t at, const uint8_t* from, std::size_t bytes) {
        const bool is_entry = at >= ring_ && at + bytes <= ring_end_;
        if (!is_entry && (at < slots_ || at + bytes > bytes_ - HEAD)) fail("the logic writes outside of its part of the host's memory");
        std::memcpy(start_ + HEAD + at, from, bytes);
    }
    void allow(std::size_t ring, std::size_t ring_end, std::size_t slots) {
        ring_ = ring;
        ring_end_ = ring_end;
        slots_ = slots;
    }
    // What konkordia wrote before it said its address.
    const uint8_t* part(std::size_t at, std::size_t bytes) const {
        if (at > bytes_ - HEAD || bytes > bytes_ - HEAD - at) fail("a part lies outside of the memory of konkordia");
        return start_ + HEAD + at;
    }
    uint64_t load(std::size_t at) const { return word(at)->load(std::memory_order_acquire); }
    void store(std::size_t at, uint64_t value) { word(at)->store(value, std::memory_order_release); }

private:
    std::atomic<uint64_t>* word(std::size_t at) const {
        return reinterpret_cast<std::atomic<uint64_t>*>(start_ + HEAD + at);
    }
    int fd_ = -1;
    uint8_t* start_ = nullptr;
    std::size_t bytes_ = 0, ring_ = 0, ring_end_ = 0, slots_ = ~std::size_t{0};
};

std::vector<std::vector<uint8_t>> frames_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(path + " cannot be opened");
    std::vector<std::vector<uint8_t>> frames;
    for (uint32_t bytes = 0; in.read(reinterpret_cast<char*>(&bytes), 4);) {
        frames.emplace_back(bytes);
        if (!in.read(reinterpret_cast<char*>(frames.back().data()), bytes)) fail(path + " ends inside of a frame");
    }
    return frames;
}

class Card {
public:
    Card(Host& host, uint64_t seed) : host_(host), dice_(seed), stalls_(seed != 0) {
        logic_registers();
        host_registers();
        memory_.resize(64 * slot_bytes_);
        const uint64_t released = host.load(RELEASED);
        if (released != 0) fail("the memory of konkordia was used before");
        host.hold(ring_);
        logic_.rst = 1;
        for (int n = 0; n < 4; ++n) clock();
        logic_.rst = 0;
        const std::size_t rows = host.load(REGISTERS + 64);
        const uint8_t* row = host.part(host.load(REGISTERS + 72), rows * ROW_BYTES);
        for (std::size_t n = 0; n < rows; ++n, row += ROW_BYTES) {
            uint32_t table[2];
            uint64_t value;
            std::memcpy(table, row, 8);
            std::memcpy(&value, row + 8, 8);
            logic_.cfg_write = 1;
            logic_.cfg_select = table[0];
            logic_.cfg_address = table[1];
            logic_.cfg_data = value;
            clock();
        }
        logic_.cfg_write = 0;
        for (int n = 0; n < 300; ++n) clock();
        host.store(STATE, RUNNING);
    }

    // All frames, and then until konkordia says that the run is over and nothing moves any more.
    void run(const std::vector<std::vector<uint8_t>>& frames) {
        frames_ = &frames;
        uint64_t waited_us = 0;
        while (logic_.flush == 0 || quiet_ <= QUIET_CLOCKS || is_waiting_for_host()) {
            clock();
            if (host_.load(STOP) != 0) {
                // What is on the line when the run is over is not received.
                if (at_ == 0) frame_ = frames.size();
                if (frame_ == frames.size() && quiet_ > QUIET_CLOCKS && !is_waiting_for_host() && logic_.flush == 0) {
                    logic_.flush = 1;
                    quiet_ = 0;
                }
            }
            const bool waits = frame_ == frames.size() && (quiet_ > QUIET_CLOCKS || is_waiting_for_host());
            if (!waits) {
                waited_us = 0;
                continue;
            }
            if (waited_us == 0) tell();
            usleep(WAIT_US);
            waited_us += WAIT_US;
            if (waited_us > STUCK_US) fail("konkordia neither gives a slot back nor ends the run");
        }
        tell();
        host_.store(CLOCKS, clocks_);
        host_.store(STATE, ENDED);
        std::cout << "{\"clocks\": " << clocks_ << ", \"line_clocks\": " << line_clocks_ << ", \"line_bytes\": " << line_bytes_
                  << ", \"frames\": " << uint64_t{logic_.frames} << ", \"dma_bytes\": " << dma_bytes_ << ", \"entries_at\": [";
        for (std::size_t n = 0; n < entries_at_.size(); ++n) std::cout << (n == 0 ? "" : ", ") << entries_at_[n];
        std::cout << "]}\n";
    }

private:
    // Registers of the logic, in the order of `REGISTERS` in crates/fabric/src/card/logic.rs.
    void logic_registers() {
        if ((host_.load(REGISTERS) & 0xFFFFFFFF) != VERSION) fail("konkordia speaks another version");
        std::size_t at = LOGIC;
        const auto next = [&] {
            at += 8;
            return host_.load(at - 8);
        };
        logic_.cfg_frame_offset = next();
        logic_.cfg_frame_big = next();
        logic_.cfg_frame_mask = next();
        logic_.cfg_frame_shift = next();
        logic_.cfg_packet_offset = next();
        logic_.cfg_packet_big = next();
        logic_.cfg_packet_mask = next();
        logic_.cfg_packet_shift = next();
        logic_.cfg_module_offset = next();
        logic_.cfg_module_big = next();
        logic_.cfg_module_mask = next();
        logic_.cfg_module_shift = next();
        logic_.cfg_frame_bits = next();
        logic_.cfg_first_packet = next();
        logic_.cfg_packets = next();
        logic_.cfg_frame_packets = next();
        logic_.cfg_datagram_bytes = next();
        logic_.cfg_header_sixteenths = next();
        logic_.cfg_tiles = next();
        slot_bytes_ = next();
        logic_.cfg_unit_log2 = next();
        const uint64_t version = next(), low = next(), high = next();
        logic_.cfg_v4 = version == 4;
        logic_.cfg_v6 = version == 6;
        logic_.cfg_address_v4 = low;
        for (int n = 0; n < 4; ++n) logic_.cfg_address_v6[n] = (n < 2 ? low : high) >> 32 * (n % 2);
        logic_.cfg_port_first = next();
        logic_.cfg_streams = next();
        logic_.cfg_high_gain = next();
        logic_.cfg_shifts = next();
        logic_.cfg_base = 0;
        logic_.cfg_slot_bytes = slot_bytes_;
        logic_.cfg_beats = slot_bytes_ / BEAT;
    }

    // Type, first frame, slots and their places, and where the constants lie.
    void host_registers() {
        const std::size_t slots = host_.load(REGISTERS + 16), slots_start = host_.load(REGISTERS + 32);
        logic_.cfg_unsigned = host_.load(REGISTERS) >> 32 & 1;
        logic_.cfg_first_frame = host_.load(REGISTERS + 8);
        logic_.cfg_host_slots = slots;
        logic_.cfg_host_slot_bytes = host_.load(REGISTERS + 24);
        logic_.cfg_host_pixels = slots_start;
        ring_ = host_.load(REGISTERS + 40);
        logic_.cfg_host_ring = ring_ + RING_HEAD;
        host_.allow(ring_ + RING_HEAD, ring_ + RING_HEAD + slots * ENTRY_BYTES, slots_start);
        if (host_.load(REGISTERS + 48) != slot_bytes_) fail("konkordia waits for frames of another size");
        constants_bytes_ = host_.load(REGISTERS + 80);
        constants_ = host_.part(host_.load(REGISTERS + 88), constants_bytes_);
        if (constants_bytes_ != slot_bytes_ / BEAT * CONSTANT_BYTES) fail("there are not constants of all pixels");
    }

    bool is_waiting_for_host() const {
        return logic_.cfg_host_slots > 0 && uint64_t{logic_.frames} - uint64_t{logic_.host_released} >= logic_.cfg_host_slots;
    }

    bool stalls(unsigned percent) { return stalls_ && dice_() % 100 < percent; }

    // One clock: inputs while it is low, then outputs are looked at, then it rises.
    void clock() {
        logic_.clk = 0;
        drive();
        logic_.eval();
        sample();
        logic_.clk = 1;
        logic_.eval();
        ++clocks_;
        if (clocks_ % 4096 == 0) tell();
    }

    void drive() {
        logic_.host_released = host_.load(RELEASED);
        logic_.s_valid = 0;
        if (frames_ != nullptr && frame_ < frames_->size() && !logic_.rst && line_pause_ == 0) {
            const std::vector<uint8_t>& frame = (*frames_)[frame_];
            const std::size_t bytes = std::min(BEAT, frame.size() - at_);
            uint8_t beat[BEAT] = {};
            std::memcpy(beat, frame.data() + at_, bytes);
            std::memcpy(logic_.s_data.data(), beat, BEAT);
            logic_.s_keep = bytes == BEAT ? ~uint64_t{0} : (uint64_t{1} << bytes) - 1;
            logic_.s_last = at_ + bytes == frame.size();
            logic_.s_valid = 1;
        }
        logic_.s_error = 0;
        logic_.m_ready = !stalls(10);
        logic_.r_ready = answers_.size() < 64 && !stalls(10);
        if (!offered_ && !answers_.empty() && !stalls(10)) offered_ = true;
        logic_.d_valid = offered_;
        if (offered_) std::memcpy(logic_.d_data.data(), memory_.data() + answers_.front(), BEAT);
        logic_.c_valid = 1;
        std::memcpy(logic_.c_data.data(), constants_ + constant_, CONSTANT_BYTES);
        logic_.h_ready = !stalls(20);
    }

    void sample() {
        bool moves = false;
        if (logic_.rst) return;
        if (line_pause_ > 0) --line_pause_;
        if (logic_.s_valid) {
            const std::size_t frame_bytes = (*frames_)[frame_].size();
            at_ += BEAT;
            ++line_clocks_;
            moves = true;
            if (at_ >= frame_bytes) {
                line_bytes_ += frame_bytes;
                at_ = 0;
                ++frame_;
                line_pause_ = stalls(30) ? dice_() % 200 : 0;
            }
        }
        if (logic_.m_valid && logic_.m_ready) {
            if (logic_.m_address + BEAT > memory_.size()) fail("the logic writes outside of the memory of the card");
            std::memcpy(memory_.data() + logic_.m_address, logic_.m_data.data(), BEAT);
            moves = true;
        }
        if (logic_.d_valid && logic_.d_ready) {
            answers_.pop_front();
            offered_ = false;
            constant_ = constant_ + CONSTANT_BYTES == constants_bytes_ ? 0 : constant_ + CONSTANT_BYTES;
            moves = true;
        }
        if (logic_.r_valid && logic_.r_ready) {
            if (logic_.r_address + BEAT > memory_.size()) fail("the logic reads outside of the memory of the card");
            answers_.push_back(logic_.r_address);
        }
        if (logic_.h_valid && logic_.h_ready) {
            const uint8_t* beat = reinterpret_cast<const uint8_t*>(logic_.h_data.data());
            const std::size_t bytes = logic_.h_record ? 32 : BEAT;
            host_.write(logic_.h_address, beat, bytes);
            dma_bytes_ += bytes;
            if (logic_.h_record) {
                uint64_t sequence = 0;
                std::memcpy(&sequence, beat, 8);
                host_.store(ring_, sequence);
                entries_at_.push_back(clocks_);
            }
            moves = true;
        }
        quiet_ = moves ? 0 : quiet_ + 1;
    }

    // The counters, as a host reads them from a card.
    void tell() {
        for (std::size_t n = 0; n < 9; ++n) host_.store(FRAME_COUNTS + 8 * n, logic_.frame_counters[n]);
        for (std::size_t n = 0; n < 10; ++n) host_.store(PACKET_COUNTS + 8 * n, logic_.packet_counters[n]);
    }

    Host& host_;
    std::mt19937_64 dice_;
    bool stalls_, offered_ = false;
    Vcard logic_;
    std::vector<uint8_t> memory_;
    const uint8_t* constants_ = nullptr;
    std::size_t slot_bytes_ = 0, constants_bytes_ = 0;
    std::deque<uint64_t> answers_;
    std::vector<uint64_t> entries_at_;
    const std::vector<std::vector<uint8_t>>* frames_ = nullptr;
    std::size_t frame_ = 0, at_ = 0, constant_ = 0, ring_ = 0;
    uint64_t clocks_ = 0, quiet_ = 0, line_clocks_ = 0, line_bytes_ = 0, dma_bytes_ = 0, line_pause_ = 0;
};

}  // namespace

int main(int count, char** words) {
    if (count != 3 && count != 4) {
        std::cerr << "usage: card FRAMES ADDRESS [SEED]\n";
        return 2;
    }
    try {
        const std::vector<std::vector<uint8_t>> frames = frames_of(words[1]);
        Host host(words[2]);
        Card card(host, count == 4 ? std::stoull(words[3]) : 0);
        card.run(frames);
    } catch (const std::exception& error) {
        std::cerr << "card: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
