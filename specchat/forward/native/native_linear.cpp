// Linear layers in float32 and bfloat16, for any number of rows. Sums are float32, and rounded once.
//
// The result of a row has the same bits whatever other rows are in the pass, and for every number of threads: each sum
// adds its products in the order of the inputs. So a draft tree is verified with the numbers of plain decoding.
//
// Weights are packed in blocks of LANES outputs: [outputs / LANES, inputs / n, LANES, n], where n inputs fill 32 bits.
// One load brings one word of LANES outputs, for all rows; AMX reads the same layout as tiles of 16 words.

#include "native_kernels.h"
#include "native_tiles.h"

#if defined(HAS_TILES)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr int64_t PANEL_BYTES = 1 << 18;  // weights that stay in the cache while all rows are multiplied with them

template <class T>
void store(const float* sums, const T* bias, T* out, int64_t count) {
    if (bias)
        for (int64_t i = 0; i < count; i++) out[i] = from_float<T>(sums[i] + to_float(bias[i]));
    else
        for (int64_t i = 0; i < count; i++) out[i] = from_float<T>(sums[i]);
}

// The outputs of blocks [first, last).
template <class T>
void multiply_blocks(const T* rows, const uint32_t* weights, const T* bias, T* out, int64_t count, int64_t inputs,
                     int64_t outputs, int64_t first, int64_t last) {
    const int64_t words = inputs / INPUTS_PER_WORD<T>, block_stride = words * LANES;
    const int64_t panel = PANEL_BYTES / (4 * block_stride) > 8 ? PANEL_BYTES / (4 * block_stride) : 8;
    for (int64_t start = first; start < last; start += panel) {
        const int64_t blocks = last - start < panel ? last - start : panel;
        for_tiles(count, blocks, [&](int64_t row, int64_t block, auto row_count, auto block_count) {
            constexpr int ROWS = decltype(row_count)::value, BLOCKS = decltype(block_count)::value;
            Floats sums[ROWS][BLOCKS];
            block += start;
            multiply_tile(rows + row * inputs, inputs, weights + block * block_stride, block_stride, words, sums);
            const int64_t from = block * LANES, size = outputs - from < BLOCKS * LANES ? outputs - from : BLOCKS * LANES;
            for (int i = 0; i < ROWS; i++)
                store(reinterpret_cast<const float*>(sums[i]), bias ? bias + from : nullptr,
                      out + (row + i) * outputs + from, size);
        });
    }
}

#if defined(HAS_TILES)

constexpr int TILE_WORDS = 16;  // a tile of weights: 16 words of 16 outputs
constexpr int TILE_PREFETCH_WORDS = 64;

// Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights. `second` rows follow the first 16.
void configure_tiles(int first, int second) {
    TileConfig config;
    for (const int tile : {0, 1, 4}) config.set(tile, first);
    for (const int tile : {2, 3, 5}) config.set(tile, second ? second : first);
    for (const int tile : {6, 7}) config.set(tile, TILE_WORDS);
    config.load();
}

void store_tile(const float (&sums)[TILE_ROWS][LANES], const bfloat16* bias, bfloat16* out, int rows, int64_t outputs,
                int64_t from) {
    const int64_t size = outputs - from < LANES ? outputs - from : LANES;
    for (int row = 0; row < rows; row++)
        store(sums[row], bias ? bias + from : nullptr, out + row * outputs + from, size);
}

// Up to 32 rows times the blocks [first, last): two blocks for each row tile, so that four sums are under way.
void multiply_tiles(const bfloat16* rows, const uint32_t* weights, const bfloat16* bias, bfloat16* out, int64_t count,
                    int64_t inputs, int64_t outputs, int64_t first, int64_t last) {
    const int64_t words = inputs / 2, block_stride = words * LANES, row_bytes = inputs * 2;
    const int upper = count < TILE_ROWS ? int(count) : TILE_ROWS, lower = int(count) - upper;
    alignas(64) float sums[TILE_ROWS][LANES];
    configure_tiles(upper, lower);
    for (int64_t block = first; block < last; block += 2) {
        const uint32_t* left = weights + block * block_stride;
        const bool has_right = block + 1 < last;
        const uint32_t* right = has_right ? left + block_stride : left;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t word = 0; word < words; word += TILE_WORDS) {
            _tile_loadd(4, rows + word * 2, row_bytes);
            _tile_loadd(6, left + word * LANES, 64);
            _tile_loadd(7, right + word * LANES, 64);
            for (int i = 0; i < TILE_WORDS; i++) {
                __builtin_prefetch(left + (word + TILE_PREFETCH_WORDS + i) * LANES);
                __builtin_prefetch(right + (word + TILE_PREFETCH_WORDS + i) * LANES);
            }
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (lower) {
                _tile_loadd(5, rows + TILE_ROWS * inputs + word * 2, row_bytes);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, sums, 64);
        store_tile(sums, bias, out, upper, outputs, block * LANES);
        if (has_right) {
            _tile_stored(1, sums, 64);
            store_tile(sums, bias, out, upper, outputs, (block + 1) * LANES);
        }
        if (!lower) continue;
        _tile_stored(2, sums, 64);
        store_tile(sums, bias, out + TILE_ROWS * outputs, lower, outputs, block * LANES);
        if (has_right) {
            _tile_stored(3, sums, 64);
            store_tile(sums, bias, out + TILE_ROWS * outputs, lower, outputs, (block + 1) * LANES);
        }
    }
    _tile_release();
}

void multiply_blocks_amx(const bfloat16* rows, const uint32_t* weights, const bfloat16* bias, bfloat16* out,
                         int64_t count, int64_t inputs, int64_t outputs, int64_t first, int64_t last) {
    const int64_t panel = PANEL_BYTES / (32 * inputs) / 2 * 2 + 2;
    for (int64_t start = first; start < last; start += panel)
        for (int64_t row = 0; row < count; row += 2 * TILE_ROWS)
            multiply_tiles(rows + row * inputs, weights, bias, out + row * outputs,
                           count - row < 2 * TILE_ROWS ? count - row : 2 * TILE_ROWS, inputs, outputs, start,
                           last - start < panel ? last : start + panel);
}

#endif

// rows [count, inputs]; weights packed; bias [outputs] or null -> out [count, outputs]. bfloat16 inputs are whole tiles.
template <class T>
void linear(const T* rows, const uint32_t* weights, const T* bias, T* out, int64_t count, int64_t inputs,
            int64_t outputs, int64_t threads) {
    const int64_t blocks = (outputs + LANES - 1) / LANES;
    in_parallel(threads, [&](int64_t part, int64_t parts) {
        const int64_t pairs = (blocks + 1) / 2;
        const int64_t first = pairs * part / parts * 2, end = pairs * (part + 1) / parts * 2;
        const int64_t last = end < blocks ? end : blocks;
#if defined(HAS_TILES)
        if constexpr (std::is_same_v<T, bfloat16>)
            if (has_amx) return multiply_blocks_amx(rows, weights, bias, out, count, inputs, outputs, first, last);
#endif
        multiply_blocks(rows, weights, bias, out, count, inputs, outputs, first, last);
    });
}

}  // namespace

extern "C" {
EXPORT(linear)

int64_t lanes() { return LANES; }

// Asks the system for AMX, once for a process; false where it has none.
bool enable_amx() {
#if defined(HAS_TILES)
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return has_amx = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
}
