// The instructions of AMX in plain C++, so that the kernels with tiles can be tested on a CPU without them.
// Included before each source; "Intel Architecture Instruction Set Extensions" describes what they compute.

#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#define __AMX_TILE__ 1

namespace emulated {

struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
};

struct Tiles {
    Config config;
    uint8_t data[8][16][64];
};

inline thread_local Tiles tiles;

inline void load_config(const void* config) {
    std::memcpy(&tiles.config, config, sizeof tiles.config);
    std::memset(tiles.data, 0, sizeof tiles.data);
}

inline void zero(int tile) { std::memset(tiles.data[tile], 0, sizeof tiles.data[tile]); }

inline void load(int tile, const void* base, int64_t stride) {
    zero(tile);
    for (int row = 0; row < tiles.config.rows[tile]; row++)
        std::memcpy(tiles.data[tile][row], static_cast<const char*>(base) + row * stride, tiles.config.bytes_per_row[tile]);
}

inline void store(int tile, void* base, int64_t stride) {
    for (int row = 0; row < tiles.config.rows[tile]; row++)
        std::memcpy(static_cast<char*>(base) + row * stride, tiles.data[tile][row], tiles.config.bytes_per_row[tile]);
}

// sums [rows, columns] += first [rows, words] times second [words, columns], in words of four bytes.
template <class Number, class Product>
void multiply(int sums, int first, int second, const Product& product) {
    const int words = tiles.config.bytes_per_row[first] / 4, columns = tiles.config.bytes_per_row[sums] / 4;
    for (int row = 0; row < tiles.config.rows[sums]; row++)
        for (int word = 0; word < words; word++)
            for (int column = 0; column < columns; column++) {
                Number sum;
                std::memcpy(&sum, &tiles.data[sums][row][4 * column], sizeof sum);
                sum = product(sum, &tiles.data[first][row][4 * word], &tiles.data[second][word][4 * column]);
                std::memcpy(&tiles.data[sums][row][4 * column], &sum, sizeof sum);
            }
}

template <class First, class Second>
void multiply_bytes(int sums, int first, int second) {
    multiply<int32_t>(sums, first, second, [](int32_t sum, const uint8_t* left, const uint8_t* right) {
        for (int i = 0; i < 4; i++) sum += int32_t(First(left[i])) * int32_t(Second(right[i]));
        return sum;
    });
}

inline float widened(const uint8_t* bytes) {
    uint16_t half;
    std::memcpy(&half, bytes, sizeof half);
    const uint32_t bits = uint32_t(half) << 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

inline void multiply_bfloat16(int sums, int first, int second) {
    multiply<float>(sums, first, second, [](float sum, const uint8_t* left, const uint8_t* right) {
        return sum + widened(left) * widened(right) + widened(left + 2) * widened(right + 2);
    });
}

}  // namespace emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated::load_config
#define _tile_release() (void)0
#define _tile_loadd(TILE, BASE, STRIDE) emulated::load(TILE, BASE, STRIDE)
#define _tile_stored(TILE, BASE, STRIDE) emulated::store(TILE, BASE, STRIDE)
#define _tile_zero(TILE) emulated::zero(TILE)
#define _tile_dpbssd(SUMS, FIRST, SECOND) emulated::multiply_bytes<int8_t, int8_t>(SUMS, FIRST, SECOND)
#define _tile_dpbsud(SUMS, FIRST, SECOND) emulated::multiply_bytes<int8_t, uint8_t>(SUMS, FIRST, SECOND)
#define _tile_dpbf16ps(SUMS, FIRST, SECOND) emulated::multiply_bfloat16(SUMS, FIRST, SECOND)
#define syscall(...) 0  // the permission to use tiles
