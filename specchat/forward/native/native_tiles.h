// AMX: eight tiles, matrices of up to 16 rows of 64 bytes in registers, which a CPU multiplies as a whole.

#pragma once

#include <initializer_list>

#include "native_lanes.h"

#if defined(__AMX_TILE__) && defined(__linux__)
#define HAS_TILES 1

__attribute__((visibility("hidden"))) inline bool has_amx = false;  // the system lets this process use tiles

constexpr int TILE_ROWS = 16, TILE_BYTES = 64;  // of a row

// Makes the compiler store what lies at this address: it does not know that instructions for tiles read memory.
inline void publish_memory(const void* address) { asm volatile("" : : "r"(address) : "memory"); }

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int64_t tile_rows, int row_bytes = TILE_BYTES) {
        rows[tile] = uint8_t(tile_rows);
        bytes_per_row[tile] = uint16_t(row_bytes);
    }

    void load() const {
        publish_memory(this);
        _tile_loadconfig(this);
    }
};

#endif
