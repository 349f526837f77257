// Linear layers on the blocks of GGUF files: codes of 4, 5, 6 or 8 bits, with scales and, in some formats, minimums.
//
// Activations are quantized to 8 bits, with one scale for each group of 32. A number of more than three times
// the next largest of its group would make the scale too coarse for the others: it is an outlier, and is multiplied as
// a float. The product of a group is an integer, which has no order; groups are scaled and added in their order, then outliers.
// So a row has the same bits whatever other rows are in the pass, and for every number of threads. Tiles of AMX multiply
// the groups of many rows, vectors those of few: the integers are the same.
//
// Weights are packed in blocks of LANES outputs, group after group of inputs: the scales of all lanes, their minimums,
// and words of 4 codes (4 inputs of one output), LANES words together. A byte of 4-bit codes holds word i and, in its
// upper half, word i + 4. Codes of 5 and 6 bits are stored as those of 4, and after them their upper bits: a byte of
// 5-bit codes has one bit of each word, a byte of 6-bit codes two bits of every second one.
// Formats with super-blocks have half floats for each 256 inputs and bytes for each group.
// The groups of BLOCKS blocks take turns: they are multiplied together, so that an activation is loaded once for all.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "native_kernels.h"
#include "native_tiles.h"

namespace {

constexpr int GROUP = 32, WORDS = GROUP / 4, SUPER_GROUPS = 8;  // of inputs; words of 4 inputs; groups of a super-block
constexpr int64_t PANEL_BYTES = 1 << 18;  // weights that stay in the cache while all rows are multiplied with them
constexpr float OUTLIER_RATIO = 3;  // to the next largest number of the group
constexpr int PREFETCH_BYTES = 8192, CACHE_LINE = 64;
constexpr int MAX_ROWS = 8;       // that are multiplied with a group of weights while it is in registers
constexpr int BLOCKS = LANES == 16 ? 2 : 1;  // of LANES outputs that are multiplied together; 8 rows fill 32 registers
constexpr int OUTPUTS = BLOCKS * LANES;
constexpr int ROW_BLOCK = 16;     // rows whose groups lie together: a tile of AMX
constexpr int TILE_MIN_ROWS = 5;  // fewer take longer with tiles than with vectors
constexpr int64_t MIN_SHARED_GROUPS = 256;  // with fewer to quantize, waking a thread takes longer than the work
constexpr int64_t SHARED_BLOCKS = 8;  // that a thread multiplies before it takes others
constexpr int ADDED_ROWS = 4;     // whose sums are in registers together
constexpr int CHUNK = 4;          // products of tiles that are under way together

typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint8_t Codes __attribute__((vector_size(4 * LANES)));

// How the weights of a format are stored. A weight is scale * (code - offset), or scale * code + minimum.
template <int BITS_, bool HAS_MINIMUM_, bool IS_SUPER_, int SCALES_ = 1>
struct Format {
    static constexpr int BITS = BITS_, SCALES = SCALES_;  // scales of a group
    static constexpr bool HAS_MINIMUM = HAS_MINIMUM_, IS_SUPER = IS_SUPER_;
    static constexpr int NUMBERS = SCALES + HAS_MINIMUM;
    static constexpr int SUPER_BYTES = IS_SUPER ? 2 * LANES * (1 + HAS_MINIMUM) : 0;
    static constexpr int HEADER_BYTES = LANES * NUMBERS * (IS_SUPER ? 1 : 2);
    static constexpr int CODE_BYTES = BITS * LANES * GROUP / 8;
    static constexpr int GROUP_BYTES = BLOCKS * (HEADER_BYTES + CODE_BYTES);  // of all blocks
    static constexpr bool IN_PLANES = BITS == 5 || BITS == 6;
    static constexpr int UPPER_WORDS = IN_PLANES ? BITS - 4 : 0;  // that hold the bits above the lower four
    static constexpr uint8_t UPPER_BITS = IN_PLANES ? (1 << BITS) - 16 : 0;  // of a code

    // How far the upper bits of a word must be shifted down to their place in a code; negative: up.
    static constexpr int upper_shift(int word) { return BITS == 5 ? word - 4 : word / 2 * 2 - 4; }

    // Of OUTPUTS outputs.
    static int64_t block_bytes(int64_t groups) {
        return groups * GROUP_BYTES + groups / SUPER_GROUPS * BLOCKS * SUPER_BYTES;
    }

    // Where the scales and the codes of a block lie in a group.
    static constexpr int header(int block) { return block * HEADER_BYTES; }
    static constexpr int codes(int block) { return BLOCKS * HEADER_BYTES + block * CODE_BYTES; }
};

// A group of quantized activations: number = scale * integer.
struct GroupScale {
    float scale, scaled_sum;  // and the sum of all numbers
    int32_t half_sums[2];     // of the first and the last 16 integers
};

// An activation that is no part of its group's integers.
struct Outlier {
    int32_t input, row;  // the row counts from the first one that is multiplied together with it
    float number;
};

inline Floats load_halves(const uint8_t* from) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    Floats numbers;
    for (int lane = 0; lane < LANES; lane++) {
        uint16_t half;
        std::memcpy(&half, from + 2 * lane, sizeof half);
        const uint32_t bits = uint32_t(half & 0x7fff) << 13;
        float number;
        std::memcpy(&number, &bits, sizeof number);
        number *= 0x1p112f;  // the exponent of a half float has another bias
        numbers[lane] = half & 0x8000 ? -number : number;
    }
    return numbers;
#endif
}

inline Floats load_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return (Floats)_mm512_cvtepi32_ps(wide);
#elif defined(__AVX2__)
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return (Floats)_mm256_cvtepi32_ps(wide);
#else
    Floats numbers;
    for (int lane = 0; lane < LANES; lane++) numbers[lane] = float(int8_t(from[lane]));
    return numbers;
#endif
}

inline Floats load_floats(const float* from) {
    Floats numbers;
    std::memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

inline Floats load_floats(const bfloat16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return (Floats)(__builtin_convertvector(halves, Words) << 16);
}

#if defined(__AVX512F__)
inline Floats larger(Floats one, Floats other) { return (Floats)_mm512_max_ps((__m512)one, (__m512)other); }
inline Floats smaller(Floats one, Floats other) { return (Floats)_mm512_min_ps((__m512)one, (__m512)other); }
#elif defined(__AVX2__)
inline Floats larger(Floats one, Floats other) { return (Floats)_mm256_max_ps((__m256)one, (__m256)other); }
inline Floats smaller(Floats one, Floats other) { return (Floats)_mm256_min_ps((__m256)one, (__m256)other); }
#else
inline Floats larger(Floats one, Floats other) { return one > other ? one : other; }
inline Floats smaller(Floats one, Floats other) { return one < other ? one : other; }
#endif

// The lanes in another order, so that after a round for each bit of a lane's number all have met.
template <int BIT>
inline Floats exchange(Floats numbers) {
#if defined(__AVX512F__)
    if (BIT == 8) return (Floats)_mm512_shuffle_f32x4((__m512)numbers, (__m512)numbers, 0x4e);
    if (BIT == 4) return (Floats)_mm512_shuffle_f32x4((__m512)numbers, (__m512)numbers, 0xb1);
    return (Floats)_mm512_permute_ps((__m512)numbers, BIT == 2 ? 0x4e : 0xb1);
#elif defined(__AVX2__)
    if (BIT == 4) return (Floats)_mm256_permute2f128_ps((__m256)numbers, (__m256)numbers, 1);
    return (Floats)_mm256_permute_ps((__m256)numbers, BIT == 2 ? 0x4e : 0xb1);
#else
    Floats exchanged;
    for (int lane = 0; lane < LANES; lane++) exchanged[lane] = numbers[lane ^ BIT];
    return exchanged;
#endif
}

// Rounds to nearest, ties to even.
inline Ints nearest(Floats numbers) {
#if defined(__AVX512F__)
    return (Ints)_mm512_cvtps_epi32((__m512)numbers);
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtps_epi32((__m256)numbers);
#else
    Ints rounded;
    for (int lane = 0; lane < LANES; lane++) rounded[lane] = int32_t(std::nearbyint(numbers[lane]));
    return rounded;
#endif
}

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
// Without VNNI codes of up to 6 bits are multiplied to sums of two products, in 16 bits: these hold those of some words.
// Codes of 8 bits are multiplied as two of 4.
#define HAS_PAIRS

typedef int16_t Pairs __attribute__((vector_size(4 * LANES)));

constexpr int words_of_pairs(int bits) { return bits == 6 ? 2 : bits == 5 ? 4 : 8; }  // 2 * 127 * code * words < 2^15

inline void add_pairs(Pairs& sums, Codes codes, int32_t integers, bool is_first) {
#if defined(__AVX512BW__)
    const Pairs products = (Pairs)_mm512_maddubs_epi16((__m512i)codes, _mm512_set1_epi32(integers));
#else
    const Pairs products = (Pairs)_mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(integers));
#endif
    sums = is_first ? products : sums + products;
    asm("" : "+x"(sums));  // compilers would otherwise multiply everything first, and put the products into memory
}

inline Ints sum_of_pairs(Pairs pairs) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1));
#else
    return (Ints)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1));
#endif
}

#else

// sums + the products of the 4 codes of each lane with 4 integers of 8 bits.
inline Ints add_products(Ints sums, Codes codes, int32_t integers) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, _mm512_set1_epi32(integers));
#else
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) sums[lane] += int32_t(codes[4 * lane + i]) * int8_t(uint32_t(integers) >> (8 * i));
    return sums;
#endif
}

#endif

// One group of the weights of LANES outputs.
template <class F>
struct WeightGroup {
    Floats scales[F::SCALES], minimum;
    const uint8_t* codes;

    // That of a block, in a group of all.
    void load(const uint8_t* group, int block, const Floats& super_scale, const Floats& super_minimum) {
        const uint8_t* from = group + F::header(block);
        codes = group + F::codes(block);
        for (int i = 0; i < F::SCALES; i++)
            scales[i] = F::IS_SUPER ? super_scale * load_bytes(from + i * LANES) : load_halves(from + 2 * i * LANES);
        if (F::HAS_MINIMUM)
            minimum = F::IS_SUPER ? super_minimum * load_bytes(from + F::SCALES * LANES)
                                  : load_halves(from + 2 * F::SCALES * LANES);
    }

    // The codes of word i, of 4 inputs.
    Codes word(int i) const {
        if (F::BITS == 8) return load_codes(i);
        const Codes lower = i < WORDS / 2 ? load_codes(i) & 15 : load_codes(i - WORDS / 2) >> 4;
        if (!F::IN_PLANES) return lower;
        const Codes upper = load_codes(WORDS / 2 + (F::UPPER_WORDS == 2 ? i % 2 : 0));
        return lower | upper_bits(upper, F::upper_shift(i));
    }

    Codes load_codes(int index) const {
        Codes loaded;
        std::memcpy(&loaded, codes + index * sizeof loaded, sizeof loaded);
        return loaded;
    }

    // Shifted as 32 bits, since CPUs shift no bytes: what comes from the next byte is masked away.
    static Codes upper_bits(Codes bits, int shift) {
        return (Codes)(shift < 0 ? (Words)bits << -shift : (Words)bits >> shift) & F::UPPER_BITS;
    }

    // sums + products with the weights that have scale number `part`.
    Floats add_products_of(int part, Floats sums, Ints products, const GroupScale& group) const {
        return sums + __builtin_convertvector(products, Floats) * (scales[part] * group.scale);
    }

    Floats add_minimum(Floats sums, const GroupScale& group) const {
        return F::HAS_MINIMUM ? sums + minimum * group.scaled_sum : sums;
    }
};

// A group of ROWS rows times that of all blocks.
template <class F, int ROWS>
struct GroupProducts {
    const WeightGroup<F> (&weights)[BLOCKS];
    const int8_t* integers;  // of the rows, one after the other
    const GroupScale* scales;

    void add_to(Floats (&sums)[ROWS][BLOCKS], int32_t offset) const {
        constexpr int SHARE = WORDS / F::SCALES;  // words with one scale
#pragma GCC unroll 2
        for (int part = 0; part < F::SCALES; part++) {
            Ints products[ROWS][BLOCKS];
            for (int row = 0; row < ROWS; row++) {
                const int32_t* half_sums = scales[row].half_sums;
                const int32_t sum = F::SCALES == 1 ? half_sums[0] + half_sums[1] : half_sums[part];
                for (int block = 0; block < BLOCKS; block++)
                    products[row][block] = F::HAS_MINIMUM ? Ints{} : Ints{} - offset * sum;
            }
            multiply<SHARE>(part * SHARE, products);
            for (int row = 0; row < ROWS; row++)
                for (int block = 0; block < BLOCKS; block++)
                    sums[row][block] =
                        weights[block].add_products_of(part, sums[row][block], products[row][block], scales[row]);
        }
        for (int row = 0; row < ROWS; row++)
            for (int block = 0; block < BLOCKS; block++)
                sums[row][block] = weights[block].add_minimum(sums[row][block], scales[row]);
    }

    int32_t load_integers(int row, int word) const {
        int32_t loaded;
        std::memcpy(&loaded, integers + row * GROUP + 4 * word, sizeof loaded);
        return loaded;
    }

#if defined(HAS_PAIRS)
    // Adds the products of COUNT words from `start` on.
    template <int COUNT>
    void multiply(int start, Ints (&products)[ROWS][BLOCKS]) const {
        constexpr int STEP = words_of_pairs(F::BITS) < COUNT ? words_of_pairs(F::BITS) : COUNT;
#pragma GCC unroll 8
        for (int first = start; first < start + COUNT; first += STEP) {
            Pairs pairs[ROWS][BLOCKS], upper[ROWS][BLOCKS];
#pragma GCC unroll 8
            for (int i = first; i < first + STEP; i++)
#pragma GCC unroll 2
                for (int block = 0; block < BLOCKS; block++) {
                    const Codes word = weights[block].word(i);
#pragma GCC unroll 8
                    for (int row = 0; row < ROWS; row++) {
                        const int32_t four = load_integers(row, i);
                        add_pairs(pairs[row][block], F::BITS == 8 ? word & 15 : word, four, i == first);
                        if (F::BITS == 8) add_pairs(upper[row][block], word >> 4, four, i == first);
                    }
                }
            for (int row = 0; row < ROWS; row++)
                for (int block = 0; block < BLOCKS; block++) {
                    Ints sum = sum_of_pairs(pairs[row][block]);
                    if (F::BITS == 8) sum += sum_of_pairs(upper[row][block]) * 16;
                    products[row][block] += sum;
                }
        }
    }
#else
    // Adds the products of COUNT words from `start` on.
    template <int COUNT>
    void multiply(int start, Ints (&products)[ROWS][BLOCKS]) const {
#pragma GCC unroll 8
        for (int i = start; i < start + COUNT; i++) {
            Codes words[BLOCKS];
            for (int block = 0; block < BLOCKS; block++) words[block] = weights[block].word(i);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++) {
                const int32_t four = load_integers(row, i);
                for (int block = 0; block < BLOCKS; block++)
                    products[row][block] = add_products(products[row][block], words[block], four);
            }
        }
    }
#endif
};

// Where the weights of one input lie in packed blocks, all of which have them in the same place: bytes from the
// beginning, those of the first of BLOCKS blocks, and how far words are shifted to the right, and their upper bits back.
struct InputPlace {
    int32_t super, header, codes, upper, shift, upper_shift, upper_back;
};

template <class F>
inline InputPlace place_of_input(int32_t input) {
    const int number = input / GROUP, word = input % GROUP / 4, part = input % GROUP * F::SCALES / GROUP;
    const int stored = F::BITS == 8 ? word : word % (WORDS / 2), byte = input % 4 * 8;
    const int super = int(F::block_bytes(SUPER_GROUPS)) * (number / SUPER_GROUPS);
    const int group = super + BLOCKS * F::SUPER_BYTES + number % SUPER_GROUPS * F::GROUP_BYTES;
    InputPlace place{};
    place.super = super;
    place.header = group + part * LANES * (F::IS_SUPER ? 1 : 2);
    place.codes = group + F::codes(0) + stored * int(sizeof(Codes));
    place.shift = byte + (word == stored ? 0 : 4);
    if constexpr (F::IN_PLANES) {
        const int shift = byte + F::upper_shift(word);
        place.upper = group + F::codes(0) + (WORDS / 2 + word % F::UPPER_WORDS) * int(sizeof(Codes));
        (shift < 0 ? place.upper_back : place.upper_shift) = std::abs(shift);
    }
    return place;
}

// The weights of one input of the LANES outputs of a block.
template <class F>
inline Floats weights_of_input(const uint8_t* weights, int block, const InputPlace& place, int32_t offset) {
    Words codes;
    std::memcpy(&codes, weights + place.codes + block * F::CODE_BYTES, sizeof codes);
    codes = (codes >> place.shift) & (F::BITS == 8 ? 255 : 15);
    if constexpr (F::IN_PLANES) {
        Words upper;
        std::memcpy(&upper, weights + place.upper + block * F::CODE_BYTES, sizeof upper);
        codes |= upper >> place.upper_shift << place.upper_back & F::UPPER_BITS;
    }
    const Floats numbers = __builtin_convertvector((Ints)codes - (F::HAS_MINIMUM ? 0 : offset), Floats);
    const uint8_t *super = weights + place.super + block * F::SUPER_BYTES;
    const uint8_t *from = weights + place.header + block * F::HEADER_BYTES;
    if (!F::IS_SUPER) {
        const Floats scaled = numbers * load_halves(from);
        return F::HAS_MINIMUM ? scaled + load_halves(from + 2 * F::SCALES * LANES) : scaled;
    }
    const Floats scaled = numbers * (load_halves(super) * load_bytes(from));
    return F::HAS_MINIMUM ? scaled + load_halves(super + 2 * LANES) * load_bytes(from + F::SCALES * LANES) : scaled;
}

inline bool uses_tiles([[maybe_unused]] int64_t rows) {
#if defined(HAS_TILES)
    return has_amx && rows >= TILE_MIN_ROWS;
#else
    return false;
#endif
}

// How many rows are multiplied together, of those that are left of a row block.
inline int64_t rows_together(int64_t left) {
    if (uses_tiles(left)) return left;
    return std::min(left, int64_t(MAX_ROWS));
}

// Up to ROW_BLOCK quantized rows: integers [groups, height, GROUP], scales [groups, height], and the outliers: those of
// rows that are multiplied together, the first of which is row i, begin at starts[i], in the order of their groups.
struct RowBlock {
    const int8_t* integers;
    const GroupScale* scales;
    const Outlier* outliers;
    const int64_t* starts;
    int64_t height, groups;

    RowBlock from_row(int64_t row) const {
        return {integers + row * GROUP, scales + row, outliers, starts + row, height, groups};
    }
};

// Goes through the groups of all blocks: loads their scales, and fetches what comes next.
template <class F>
struct WeightReader {
    const uint8_t* weights;
    int64_t index = 0;
    Floats super_scales[BLOCKS] = {}, super_minimums[BLOCKS] = {};

    void read(WeightGroup<F> (&groups)[BLOCKS]) {
        if (F::IS_SUPER && index++ % SUPER_GROUPS == 0)
            for (int block = 0; block < BLOCKS; block++, weights += F::SUPER_BYTES) {
                super_scales[block] = load_halves(weights);
                if (F::HAS_MINIMUM) super_minimums[block] = load_halves(weights + 2 * LANES);
            }
        for (int i = 0; i < F::GROUP_BYTES; i += CACHE_LINE) __builtin_prefetch(weights + PREFETCH_BYTES + i);
        for (int block = 0; block < BLOCKS; block++)
            groups[block].load(weights, block, super_scales[block], super_minimums[block]);
        weights += F::GROUP_BYTES;
    }
};

typedef float Sums[ROW_BLOCK][BLOCKS][LANES];

// An outlier, and where its weights are; those of the one before it are the same where both are numbers of one input.
struct PlacedOutlier {
    InputPlace place;
    int32_t row;
    bool has_new_input;
    float number;
};

// The outliers of rows that are multiplied together. They are placed once for all packed blocks.
template <class F>
struct PlacedOutliers {
    const PlacedOutlier *first, *last;

    PlacedOutliers(const RowBlock& rows, int64_t count) {
        thread_local std::vector<PlacedOutlier> buffer;
        PlacedOutlier* to = sized(buffer, rows.starts[count] - rows.starts[0]);
        first = to;
        for (int64_t i = rows.starts[0], input = -1; i < rows.starts[count]; input = rows.outliers[i++].input) {
            const Outlier& each = rows.outliers[i];
            *to++ = {place_of_input<F>(each.input), each.row, each.input != input, each.number};
        }
        last = to;
    }

    // Adds them to the sums of their rows.
    void add(const uint8_t* weights, int32_t offset, Sums& sums) const {
        Floats numbers[BLOCKS];
        for (const PlacedOutlier* each = first; each < last; each++)
            for (int block = 0; block < BLOCKS; block++) {
                if (each->has_new_input) numbers[block] = weights_of_input<F>(weights, block, each->place, offset);
                float* to = sums[each->row][block];
                const Floats sum = load_floats(to) + numbers[block] * each->number;
                std::memcpy(to, &sum, sizeof sum);
            }
    }

    // Adds them to the sums of the only row.
    void add(const uint8_t* weights, int32_t offset, Floats (&sums)[BLOCKS]) const {
        Floats added[BLOCKS];
        for (int block = 0; block < BLOCKS; block++) added[block] = sums[block];
        for (const PlacedOutlier* each = first; each < last; each++)
            for (int block = 0; block < BLOCKS; block++)
                added[block] += weights_of_input<F>(weights, block, each->place, offset) * each->number;
        for (int block = 0; block < BLOCKS; block++) sums[block] = added[block];
    }
};

// The first ROWS rows times OUTPUTS outputs.
template <class F, int ROWS>
inline void multiply_rows(const RowBlock& rows, const PlacedOutliers<F>& outliers, const uint8_t* weights,
                          int32_t offset, Sums& out) {
    Floats sums[ROWS][BLOCKS] = {};
    WeightReader<F> reader{weights};
    for (int64_t index = 0; index < rows.groups; index++) {
        WeightGroup<F> groups[BLOCKS];
        reader.read(groups);
        const int64_t first = index * rows.height;
        GroupProducts<F, ROWS>{groups, rows.integers + first * GROUP, rows.scales + first}.add_to(sums, offset);
    }
    if constexpr (ROWS == 1) outliers.add(weights, offset, sums[0]);
    for (int row = 0; row < ROWS; row++)
        for (int block = 0; block < BLOCKS; block++) {
            const Floats sum = sums[row][block];  // a copy: of numbers with an address, compilers store each sum
            std::memcpy(out[row][block], &sum, sizeof sum);
        }
    if constexpr (ROWS > 1) outliers.add(weights, offset, out);
}

#if defined(HAS_TILES)

// Tiles 0 to 3 are products, 4 and 5 rows, 6 and 7 weights.
template <class F>
void load_tile_config(int64_t height) {
    TileConfig config;
    for (const int tile : {0, 1, 2, 3}) config.set(tile, height);
    for (const int tile : {4, 5}) config.set(tile, height, GROUP / F::SCALES);
    for (const int tile : {6, 7}) config.set(tile, WORDS / F::SCALES);
    config.load();
}

// As many groups of all blocks as have CHUNK scales.
template <class F>
struct TileChunk {
    static constexpr int GROUPS = CHUNK / F::SCALES / BLOCKS, STRIDE = GROUP / F::SCALES;  // inputs with one scale
    WeightGroup<F> groups[GROUPS][BLOCKS];
    Codes words[GROUPS][BLOCKS][WORDS];

    void read(WeightReader<F>& reader, int count, int32_t offset) {
        for (int i = 0; i < count; i++) {
            reader.read(groups[i]);
            for (int block = 0; block < BLOCKS; block++)
                for (int word = 0; word < WORDS; word++)
                    words[i][block][word] = groups[i][block].word(word) - uint8_t(F::HAS_MINIMUM ? 0 : offset);
        }
    }

    // Stores the products of the chunk before, and starts those of this one: neither waits for the other.
    void multiply(const int8_t* integers, int64_t height, Ints (&before)[CHUNK][ROW_BLOCK]) const {
        const auto rows_of = [&](int scale) {
            return integers + scale / F::SCALES * height * GROUP + scale % F::SCALES * STRIDE;
        };
        const auto words_of = [&](int scale, int block) {
            return words[scale / F::SCALES][block] + scale % F::SCALES * (STRIDE / 4);
        };
        publish_memory(this);
// a macro, since the number of a tile is a part of the instruction
#define MULTIPLY(I, ROWS, WORDS)                                    \
    _tile_stored(I, before[I], sizeof(Ints));                       \
    _tile_zero(I);                                                  \
    _tile_loadd(WORDS, words_of(I / BLOCKS, I % BLOCKS), sizeof(Codes)); \
    if constexpr (F::HAS_MINIMUM) { _tile_dpbsud(I, ROWS, WORDS); } \
    else { _tile_dpbssd(I, ROWS, WORDS); }
        _tile_loadd(4, rows_of(0), GROUP);
        _tile_loadd(5, rows_of(1), GROUP);
        MULTIPLY(0, 4, 6)
        MULTIPLY(2, 5, 7)
        MULTIPLY(1, 4, 6)
        MULTIPLY(3, 5, 7)
#undef MULTIPLY
    }

    static void store(Ints (&products)[CHUNK][ROW_BLOCK]) {
        _tile_stored(0, products[0], sizeof(Ints));
        _tile_stored(1, products[1], sizeof(Ints));
        _tile_stored(2, products[2], sizeof(Ints));
        _tile_stored(3, products[3], sizeof(Ints));
    }

    // Adds the products of the first `count` groups to the sums of some rows of a block.
    void add(Floats* sums, const Ints (&products)[CHUNK][ROW_BLOCK], const GroupScale* scales, int64_t height,
             int count, int block, int first) const {
        Floats added[ADDED_ROWS];
        for (int row = 0; row < ADDED_ROWS; row++) added[row] = sums[first + row];
        for (int i = 0; i < count; i++, scales += height) {
            const WeightGroup<F>& group = groups[i][block];
            for (int part = 0; part < F::SCALES; part++)
                for (int row = 0; row < ADDED_ROWS; row++)
                    added[row] = group.add_products_of(
                        part, added[row], products[(i * F::SCALES + part) * BLOCKS + block][first + row],
                        scales[first + row]);
            for (int row = 0; row < ADDED_ROWS; row++) added[row] = group.add_minimum(added[row], scales[first + row]);
        }
        for (int row = 0; row < ADDED_ROWS; row++) sums[first + row] = added[row];
    }
};

static_assert(CHUNK == 2 * BLOCKS, "a chunk has two scales, and a tile for each of a block");

// What multiply_tiles needs memory for.
template <class F>
struct TileBuffers {
    TileChunk<F> chunks[2];
    Ints products[CHUNK][ROW_BLOCK];
    Floats sums[BLOCKS][ROW_BLOCK];
};

// All rows times OUTPUTS outputs. Numbers of rows up to the next multiple of ADDED_ROWS are computed from what lies
// there, and nobody reads them.
template <class F>
void multiply_tiles(const RowBlock& rows, const PlacedOutliers<F>& outliers, const uint8_t* weights, int32_t offset,
                    TileBuffers<F>& buffers, Sums& out) {
    constexpr int GROUPS = TileChunk<F>::GROUPS;
    const int64_t last = (rows.groups - 1) / GROUPS;  // chunk
    const int rest = int(rows.groups - last * GROUPS);
    const auto add = [&](int64_t index, int count) {
        for (int block = 0; block < BLOCKS; block++)
            for (int row = 0; row < int(rows.height); row += ADDED_ROWS)
                buffers.chunks[index % 2].add(buffers.sums[block], buffers.products,
                                              rows.scales + index * GROUPS * rows.height, rows.height, count, block, row);
    };
    for (auto& sums : buffers.sums)
        for (Floats& each : sums) each = Floats{};
    WeightReader<F> reader{weights};
    for (int64_t index = 0; index <= last; index++) {
        TileChunk<F>& chunk = buffers.chunks[index % 2];
        chunk.read(reader, index < last ? GROUPS : rest, offset);
        chunk.multiply(rows.integers + index * GROUPS * rows.height * GROUP, rows.height, buffers.products);
        if (index > 0) add(index - 1, GROUPS);
    }
    TileChunk<F>::store(buffers.products);
    add(last, rest);
    for (int row = 0; row < int(rows.height); row++)
        for (int block = 0; block < BLOCKS; block++)
            std::memcpy(out[row][block], &buffers.sums[block][row], sizeof(Floats));
    outliers.add(weights, offset, out);
}

#endif

// Numbers of one group, in registers.
struct Group {
    static constexpr int PARTS = GROUP / LANES;
    Floats parts[PARTS];

    template <class T>
    explicit Group(const T* numbers) {
        for (int part = 0; part < PARTS; part++) parts[part] = load_floats(numbers + part * LANES);
    }

    // The two largest absolute values; the same, where two numbers have it.
    void find_largest(float& largest, float& next) const {
        Floats first = {}, second = {};
        for (const Floats& part : parts) meet(first, second, (Floats)((Words)part & 0x7fffffff), Floats{});
        if (LANES == 16) meet_lanes<8>(first, second);
        meet_lanes<4>(first, second);
        meet_lanes<2>(first, second);
        meet_lanes<1>(first, second);
        largest = first[0];
        next = second[0];
    }

    // Takes the number with this absolute value out; its place goes to `place`.
    float take(float size, int& place) {
#if defined(__AVX512F__)
        const auto equals = [&](int part) {
            return _mm512_cmpeq_ps_mask(_mm512_abs_ps((__m512)parts[part]), _mm512_set1_ps(size));
        };
        const __mmask16 in_front = equals(0), found = in_front ? in_front : equals(1), first = found & -found;
        Floats& part = parts[in_front ? 0 : 1];
        place = (in_front ? 0 : LANES) + __builtin_ctz(found);
        const bool is_negative = _mm512_test_epi32_mask((__m512i)part, _mm512_set1_epi32(INT32_MIN)) & first;
        part = (Floats)_mm512_mask_mov_ps((__m512)part, first, _mm512_setzero_ps());
        return is_negative ? -size : size;
#else
        for (place = 0; parts[place / LANES][place % LANES] != size && parts[place / LANES][place % LANES] != -size;)
            place++;
        const float number = parts[place / LANES][place % LANES];
        parts[place / LANES][place % LANES] = 0;
        return number;
#endif
    }

#if defined(__AVX512F__)
    // The same of four groups, in all lanes of a quarter.
    static void find_largest_of_four(const Group (&groups)[4], Floats& largest, Floats& next) {
        Floats first[4], second[4];
        for (int i = 0; i < 4; i++) {
            const Floats front = (Floats)((Words)groups[i].parts[0] & 0x7fffffff);
            const Floats back = (Floats)((Words)groups[i].parts[1] & 0x7fffffff);
            first[i] = larger(front, back), second[i] = smaller(front, back);
        }
        for (int i = 0; i < 4; i += 2) meet_pair<0x44, 0xee>(first[i], second[i], first[i + 1], second[i + 1]);
        meet_pair<0x88, 0xdd>(first[0], second[0], first[2], second[2]);
        meet_lanes<2>(first[0], second[0]);
        meet_lanes<1>(first[0], second[0]);
        largest = first[0], next = second[0];
    }

    // Multiplies and rounds to integers of 8 bits.
    __m256i rounded(float factor) const {
        const __m128i front = _mm512_cvtepi32_epi8((__m512i)nearest(parts[0] * factor));
        const __m128i back = _mm512_cvtepi32_epi8((__m512i)nearest(parts[1] * factor));
        return _mm256_set_m128i(back, front);
    }
#endif

    // Multiplies, rounds to integers of 8 bits, and returns the sums of both halves.
    void round(float factor, int8_t* integers, int32_t (&half_sums)[2]) const {
#if defined(__AVX512F__)
        const __m256i bytes = rounded(factor);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(integers), bytes);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
        __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
        half_sums[0] = _mm256_extract_epi32(sums, 0);
        half_sums[1] = _mm256_extract_epi32(sums, 4);
#else
        half_sums[0] = half_sums[1] = 0;
        for (int part = 0; part < PARTS; part++) {
            const Ints rounded = nearest(parts[part] * factor);
            for (int lane = 0; lane < LANES; lane++) {
                integers[part * LANES + lane] = int8_t(rounded[lane]);
                half_sums[part * 2 / PARTS] += rounded[lane];
            }
        }
#endif
    }

   private:
    // The two largest of four, lane by lane.
    static void meet(Floats& first, Floats& second, Floats other_first, Floats other_second) {
        second = larger(smaller(first, other_first), larger(second, other_second));
        first = larger(first, other_first);
    }

    template <int BIT>
    static void meet_lanes(Floats& first, Floats& second) {
        meet(first, second, exchange<BIT>(first), exchange<BIT>(second));
    }

#if defined(__AVX512F__)
    // Quarters of one vector beside those of another, as both masks choose them, meet.
    template <int ONE, int OTHER>
    static void meet_pair(Floats& first, Floats& second, const Floats& later_first, const Floats& later_second) {
        const auto chosen = [](const Floats& one, const Floats& other, auto mask) {
            return (Floats)_mm512_shuffle_f32x4((__m512)one, (__m512)other, decltype(mask)::value);
        };
        const std::integral_constant<int, ONE> one;
        const std::integral_constant<int, OTHER> other;
        const Floats met_first = chosen(first, later_first, other), met_second = chosen(second, later_second, other);
        first = chosen(first, later_first, one), second = chosen(second, later_second, one);
        meet(first, second, met_first, met_second);
    }
#endif
};

// Where the groups of a pass lie: row block after row block, in each group after group.
struct RowLayout {
    int64_t count, groups;

    int64_t height(int64_t first) const { return count - first < ROW_BLOCK ? count - first : ROW_BLOCK; }

    int64_t place(int64_t row, int64_t group) const {
        const int64_t first = row / ROW_BLOCK * ROW_BLOCK;
        return first * groups + group * height(first) + row - first;
    }
};

// Where quantized groups go.
struct QuantizedGroups {
    int8_t* integers;
    GroupScale* scales;
    Outlier* outliers;  // of each group, row after row; input -1: none
    const RowLayout& layout;

    // Group `number` of a row.
    template <class T>
    void quantize(const T* numbers, int64_t row, int64_t number) const {
        const int64_t place = layout.place(row, number);
        Group group(numbers);
        float largest, next;
        group.find_largest(largest, next);
        Outlier& outlier = outliers[row * layout.groups + number];
        outlier.input = -1;
        if (largest > OUTLIER_RATIO * next) {
            take(group, largest, number, outlier);
            largest = next;
        }
        GroupScale& scale = scales[place];
        group.round(largest > 0 ? 127.0f / largest : 0.0f, integers + place * GROUP, scale.half_sums);
        scale.scale = largest / 127.0f;
        scale.scaled_sum = scale.scale * float(scale.half_sums[0] + scale.half_sums[1]);
    }

    static void take(Group& group, float largest, int64_t number, Outlier& outlier) {
        int input;
        outlier.number = group.take(largest, input);
        outlier.input = int32_t(number) * GROUP + input;
    }

#if defined(__AVX512F__)
    // Four groups from `number` on, with the same results: what is one number of a group, a quarter of a vector holds.
    template <class T>
    void quantize_four(const T* numbers, int64_t row, int64_t number) const {
        Group groups[4] = {Group(numbers), Group(numbers + GROUP), Group(numbers + 2 * GROUP), Group(numbers + 3 * GROUP)};
        Floats largest, next;
        Group::find_largest_of_four(groups, largest, next);
        Outlier* found = outliers + row * layout.groups + number;
        for (int i = 0; i < 4; i++) found[i].input = -1;
        const __mmask16 has_outlier =
            _mm512_cmp_ps_mask((__m512)largest, (__m512)(OUTLIER_RATIO * next), _CMP_GT_OQ);
        if (has_outlier) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                if (has_outlier >> 4 * i & 1) take(groups[i], largest[4 * i], number + i, found[i]);
            largest = (Floats)_mm512_mask_mov_ps((__m512)largest, has_outlier, (__m512)next);
        }
        const __mmask16 is_positive = _mm512_cmp_ps_mask((__m512)largest, _mm512_setzero_ps(), _CMP_GT_OQ);
        alignas(64) float factors[LANES];
        _mm512_store_ps(factors, _mm512_maskz_div_ps(is_positive, _mm512_set1_ps(127.0f), (__m512)largest));
        const int64_t place = layout.place(row, number), step = layout.place(row, number + 1) - place;
        __m512i sums[2];
        for (int i = 0; i < 2; i++) {
            int8_t* to = integers + (place + 2 * i * step) * GROUP;
            const __m256i front = groups[2 * i].rounded(factors[8 * i]), back = groups[2 * i + 1].rounded(factors[8 * i + 4]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), front);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + step * GROUP), back);
            const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
            sums[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_set1_epi8(1), both), _mm512_set1_epi16(1));
            sums[i] = _mm512_add_epi32(sums[i], _mm512_shuffle_epi32(sums[i], _MM_PERM_ENUM(0x4e)));
            sums[i] = _mm512_add_epi32(sums[i], _mm512_shuffle_epi32(sums[i], _MM_PERM_ENUM(0xb1)));
        }
        const Ints first = (Ints)_mm512_shuffle_i32x4(sums[0], sums[1], 0x88);  // half of each group
        const Ints second = (Ints)_mm512_shuffle_i32x4(sums[0], sums[1], 0xdd);
        const Floats scale = largest / 127.0f, scaled = scale * __builtin_convertvector(first + second, Floats);
        __m512i written = _mm512_mask_mov_epi32((__m512i)scale, 0x2222, (__m512i)scaled);
        written = _mm512_mask_mov_epi32(written, 0x4444, (__m512i)first);
        written = _mm512_mask_mov_epi32(written, 0x8888, (__m512i)second);
        alignas(64) GroupScale quarters[4];
        _mm512_store_si512(quarters, written);
        for (int i = 0; i < 4; i++) scales[place + i * step] = quarters[i];
    }
#endif

    // Groups [first, last) of all rows.
    template <class T>
    void quantize_all(const T* numbers, int64_t first, int64_t last) const {
        for (int64_t index = first; index < last;) {
            const int64_t row = index / layout.groups, number = index % layout.groups;
#if defined(__AVX512F__)
            if (last - index >= 4 && layout.groups - number >= 4) {
                quantize_four(numbers + index * GROUP, row, number);
                index += 4;
                continue;
            }
#endif
            quantize(numbers + index++ * GROUP, row, number);
        }
    }
};

static_assert(sizeof(GroupScale) == 16, "a quarter of a vector of AVX512");

// Quantized rows in their layout, and their outliers as in a RowBlock.
struct Rows {
    const int8_t* integers;
    const GroupScale* scales;
    const Outlier* outliers;
    const int64_t* starts;  // [rows + 1]
    RowLayout layout;

    RowBlock block(int64_t first) const {
        const int64_t place = first * layout.groups;
        return {integers + place * GROUP, scales + place, outliers, starts + first, layout.height(first), layout.groups};
    }
};

// The outputs of the packed blocks [first, last) for one block of rows, whose first has this number.
template <class F, class Store>
void multiply_row_block(const RowBlock& rows, int64_t first_row, const uint8_t* weights, int32_t offset, int64_t first,
                        int64_t last, const Store& store) {
    const int64_t block_bytes = F::block_bytes(rows.groups);
    alignas(CACHE_LINE) Sums sums;
    for (int64_t row = 0, count; row < rows.height; row += count) {
        count = rows_together(rows.height - row);
        const RowBlock together = rows.from_row(row);
        const PlacedOutliers<F> outliers(together, count);
        const auto run = [&](const auto& multiply) {
            for (int64_t packed = first; packed < last; packed++) {
                multiply(weights + packed * block_bytes);
                store(first_row + row, count, packed * OUTPUTS, sums);
            }
        };
        const auto run_rows = [&](auto size) {
            run([&](const uint8_t* from) {
                multiply_rows<F, decltype(size)::value>(together, outliers, from, offset, sums);
            });
        };
#if defined(HAS_TILES)
        if (uses_tiles(count)) {
            TileBuffers<F> buffers;
            load_tile_config<F>(count);
            run([&](const uint8_t* from) { multiply_tiles<F>(together, outliers, from, offset, buffers, sums); });
            _tile_release();
            continue;
        }
#endif
        switch (count) {
            case 1: run_rows(std::integral_constant<int, 1>()); break;
            case 2: run_rows(std::integral_constant<int, 2>()); break;
            case 3: run_rows(std::integral_constant<int, 3>()); break;
            case 4: run_rows(std::integral_constant<int, 4>()); break;
            case 5: run_rows(std::integral_constant<int, 5>()); break;
            case 6: run_rows(std::integral_constant<int, 6>()); break;
            case 7: run_rows(std::integral_constant<int, 7>()); break;
            default: run_rows(std::integral_constant<int, MAX_ROWS>());
        }
    }
}

// The outputs of the packed blocks [first, last): store(row, rows, output, numbers of OUTPUTS outputs of each row).
template <class F, class Store>
void multiply_blocks(const Rows& rows, const uint8_t* weights, int32_t offset, int64_t first, int64_t last,
                     const Store& store) {
    const int64_t panel = PANEL_BYTES / F::block_bytes(rows.layout.groups) + 1;
    for (int64_t start = first; start < last; start += panel)
        for (int64_t row = 0; row < rows.layout.count; row += ROW_BLOCK)
            multiply_row_block<F>(rows.block(row), row, weights, offset, start,
                                  last - start < panel ? last : start + panel, store);
}

// Where the results of a dtype go; its type does not depend on the dtype, so kernels are compiled once.
struct Output {
    void (*convert)(const Output&, int64_t row, int64_t count, int64_t first, const Sums& sums);
    const void* bias;
    void* numbers;
    int64_t outputs, stride;

    void operator()(int64_t row, int64_t count, int64_t first, const Sums& sums) const {
        convert(*this, row, count, first, sums);
    }
};

template <class T>
void store_rows(const Output& to, int64_t row, int64_t count, int64_t first, const Sums& sums) {
    const auto store = [&](int64_t width) {
        T* out = static_cast<T*>(to.numbers) + row * to.stride + first;
        for (int64_t i = 0; i < count; i++, out += to.stride) {
            const float* numbers = sums[i][0];
            if (!to.bias)
                for (int64_t lane = 0; lane < width; lane++) out[lane] = from_float<T>(numbers[lane]);
            else
                for (int64_t lane = 0; lane < width; lane++)
                    out[lane] = from_float<T>(numbers[lane] + to_float(static_cast<const T*>(to.bias)[first + lane]));
        }
    };
    if (to.outputs - first < OUTPUTS)  // the rest is padding
        store(to.outputs - first);
    else
        store(OUTPUTS);  // a known number: vectors are stored
}

// The formats by number, as in packed_linear.py.
void multiply_format(int64_t format, const Rows& rows, const uint8_t* weights, int32_t offset, int64_t first,
                     int64_t last, const Output& out) {
    const auto run = [&](auto layout) {
        multiply_blocks<decltype(layout)>(rows, weights, offset, first, last, out);
    };
    switch (format) {
        case 0: return run(Format<4, false, false>());    // Q4_0
        case 1: return run(Format<4, true, false>());     // Q4_1
        case 2: return run(Format<8, false, false>());    // Q8_0
        case 3: return run(Format<4, true, true>());      // Q4_K
        case 4: return run(Format<5, true, true>());      // Q5_K
        case 5: return run(Format<6, false, true, 2>());  // Q6_K
        case 6: return run(Format<5, false, false>());    // Q5_0
        case 7: return run(Format<5, true, false>());     // Q5_1
    }
}

// A block of a file: its bytes, how many inputs it has, and where its half floats are (no minimum: -1).
template <class F_, int BYTES_, int SCALE_, int MINIMUM_ = -1>
struct FileBlock {
    using F = F_;
    static constexpr int BYTES = BYTES_, SCALE = SCALE_, MINIMUM = MINIMUM_;
    static constexpr int INPUTS = F::IS_SUPER ? SUPER_GROUPS * GROUP : GROUP;
};

// The formats of files, as llama.cpp describes its blocks (ggml-common.h). read(block, group, words, numbers): the words
// of a group as they are packed (of 5 and 6 bits: its codes), and its scales and its minimum where these are bytes.
struct Q4_0 : FileBlock<Format<4, false, false>, 18, 0> {
    static void read(const uint8_t* block, int, uint8_t* words, uint8_t*) { std::memcpy(words, block + 2, GROUP / 2); }
};

struct Q4_1 : FileBlock<Format<4, true, false>, 20, 0, 2> {
    static void read(const uint8_t* block, int, uint8_t* words, uint8_t*) { std::memcpy(words, block + 4, GROUP / 2); }
};

// 4 bits of each code in 16 bytes, the fifth of all in the 4 bytes before them.
inline void read_5_bits(const uint8_t* upper, uint8_t* codes) {
    const uint8_t* lower = upper + 4;
    for (int i = 0; i < GROUP; i++)
        codes[i] = uint8_t((lower[i % 16] >> i / 16 * 4 & 15) | (upper[i / 8] >> i % 8 & 1) << 4);
}

struct Q5_0 : FileBlock<Format<5, false, false>, 22, 0> {
    static void read(const uint8_t* block, int, uint8_t* words, uint8_t*) { read_5_bits(block + 2, words); }
};

struct Q5_1 : FileBlock<Format<5, true, false>, 24, 0, 2> {
    static void read(const uint8_t* block, int, uint8_t* words, uint8_t*) { read_5_bits(block + 4, words); }
};

struct Q8_0 : FileBlock<Format<8, false, false>, 34, 0> {
    static void read(const uint8_t* block, int, uint8_t* words, uint8_t*) {
        for (int i = 0; i < GROUP; i++) words[i] = block[2 + i] ^ 128;
    }
};

// A scale and a minimum of 6 bits for each group in 12 bytes; minimums are subtracted.
inline void read_k_scales(const uint8_t* packed, int group, uint8_t* numbers) {
    const uint8_t *low = packed + group % 4, *middle = low + 4, *high = low + 8;
    numbers[0] = group < 4 ? *low & 63 : uint8_t((*high & 15) | *low >> 6 << 4);
    numbers[1] = uint8_t(-(group < 4 ? *middle & 63 : *high >> 4 | *middle >> 6 << 4));
}

struct Q4_K : FileBlock<Format<4, true, true>, 144, 0, 2> {
    static void read(const uint8_t* block, int group, uint8_t* words, uint8_t* numbers) {
        read_k_scales(block + 4, group, numbers);
        const uint8_t* low = block + 16 + group / 2 * GROUP;
        const int shift = group % 2 * 4;
        for (int i = 0; i < GROUP / 2; i++)
            words[i] = uint8_t((low[i] >> shift & 15) | (low[i + GROUP / 2] >> shift & 15) << 4);
    }
};

struct Q5_K : FileBlock<Format<5, true, true>, 176, 0, 2> {
    static void read(const uint8_t* block, int group, uint8_t* words, uint8_t* numbers) {
        read_k_scales(block + 4, group, numbers);
        const uint8_t *high = block + 16, *low = block + 48 + group / 2 * GROUP;
        for (int i = 0; i < GROUP; i++)
            words[i] = uint8_t((low[i] >> group % 2 * 4 & 15) | (high[i] >> group & 1) << 4);
    }
};

struct Q6_K : FileBlock<Format<6, false, true, 2>, 210, 208> {
    static void read(const uint8_t* block, int group, uint8_t* words, uint8_t* numbers) {
        std::memcpy(numbers, block + 192 + 2 * group, 2);
        const int part = group % 4;  // of a half block
        const uint8_t *low = block + group / 4 * 64 + part % 2 * GROUP, *high = block + 128 + group / 4 * GROUP;
        for (int i = 0; i < GROUP; i++)
            words[i] = uint8_t((low[i] >> part / 2 * 4 & 15) | (high[i] >> 2 * part & 3) << 4);
    }
};

// Puts codes of 5 or 6 bits [GROUP] in the order in which their bits are stored, in place.
template <class F>
void split_planes(uint8_t* codes) {
    uint32_t upper[2] = {};
    for (int word = 0; word < WORDS; word++) {
        constexpr uint32_t MASK = F::UPPER_BITS * 0x01010101u;
        uint32_t bits;
        std::memcpy(&bits, codes + 4 * word, sizeof bits);
        const int shift = F::upper_shift(word);
        upper[word % F::UPPER_WORDS] |= shift < 0 ? (bits & MASK) >> -shift : (bits & MASK) << shift;
    }
    for (int i = 0; i < GROUP / 2; i++) codes[i] = uint8_t((codes[i] & 15) | codes[i + GROUP / 2] << 4);
    std::memcpy(codes + GROUP / 2, upper, 4 * F::UPPER_WORDS);
}

// One output of a packed block: row [groups] -> its place there. A null row is zeros.
template <class B>
void pack_output(const uint8_t* row, uint8_t* to, int place, int64_t groups) {
    using F = typename B::F;
    constexpr int GROUPS = B::INPUTS / GROUP;
    const int block = place / LANES, lane = place % LANES;
    static const uint8_t zeros[B::BYTES] = {};
    uint8_t words[GROUP], numbers[4];
    for (int64_t index = 0; index < groups; index++) {
        const uint8_t* stored = row ? row + index / GROUPS * B::BYTES : zeros;
        const auto copy_halves = [&](uint8_t* halves) {
            std::memcpy(halves + 2 * lane, stored + B::SCALE, 2);
            if (F::HAS_MINIMUM) std::memcpy(halves + 2 * (LANES + lane), stored + B::MINIMUM, 2);
        };
        if (F::IS_SUPER && index % SUPER_GROUPS == 0) {
            copy_halves(to + block * F::SUPER_BYTES);
            to += BLOCKS * F::SUPER_BYTES;
        }
        B::read(stored, int(index % GROUPS), words, numbers);
        if constexpr (F::IN_PLANES) split_planes<F>(words);
        uint8_t *header = to + F::header(block), *codes = to + F::codes(block);
        if (!F::IS_SUPER) copy_halves(header);
        for (int i = 0; F::IS_SUPER && i < F::NUMBERS; i++) header[i * LANES + lane] = numbers[i];
        for (int word = 0; word < WORDS * F::BITS / 8; word++)
            std::memcpy(codes + 4 * (word * LANES + lane), words + 4 * word, 4);
        to += F::GROUP_BYTES;
    }
}

template <class B>
void pack_rows(const uint8_t* rows, uint8_t* out, int64_t outputs, int64_t inputs, int64_t threads) {
    const int64_t groups = inputs / GROUP, row_bytes = inputs / B::INPUTS * B::BYTES;
    const int64_t blocks = (outputs + OUTPUTS - 1) / OUTPUTS;
    in_parallel(threads, [&](int64_t part, int64_t parts) {
        for (int64_t output = blocks * part / parts * OUTPUTS; output < blocks * (part + 1) / parts * OUTPUTS; output++)
            pack_output<B>(output < outputs ? rows + output * row_bytes : nullptr,
                           out + output / OUTPUTS * B::F::block_bytes(groups), int(output % OUTPUTS), groups);
    });
}

// Calls run with the format of files that has this number, as in packed_linear.py.
template <class Run>
void with_file_format(int64_t number, const Run& run) {
    switch (number) {
        case 0: return run(Q4_0());
        case 1: return run(Q4_1());
        case 2: return run(Q5_0());
        case 3: return run(Q8_0());
        case 4: return run(Q4_K());
        case 5: return run(Q5_K());
        case 6: return run(Q6_K());
        case 7: return run(Q5_1());
    }
}

// Quantized rows of a pass: sets of rows, one after the other, each in a layout of its own.
class RowSets {
   public:
    // rows [all counts, inputs]
    template <class T>
    void quantize(const T* rows, const int64_t* counts, int64_t set_count, int64_t groups, int64_t threads) {
        sets.clear();
        int64_t all = 0;
        for (int64_t set = 0; set < set_count; all += counts[set++]) sets.push_back({all, {counts[set], groups}});
        const int64_t readable = all * groups + CHUNK * ROW_BLOCK;  // tiles are read as a whole
        sized(integers, readable * GROUP);
        sized(scales, readable);
        sized(outliers, all * groups);
        in_parallel(all * groups < MIN_SHARED_GROUPS ? 1 : threads, [&](int64_t share, int64_t shares) {
            const int64_t first = all * groups * share / shares, last = all * groups * (share + 1) / shares;
            for (const RowSet& set : sets) {
                const int64_t start = set.first * groups, size = set.layout.count * groups;
                QuantizedGroups{integers.data() + start * GROUP, scales.data() + start, outliers.data() + start, set.layout}
                    .quantize_all(rows + start * GROUP, std::max(first - start, int64_t(0)), std::min(last - start, size));
            }
        });
        sorted.clear();
        sized(starts, all + set_count);
        for (int64_t set = 0; set < set_count; set++) sort_outliers(sets[size_t(set)], starts_of(set));
    }

    Rows operator[](int64_t index) const {
        const RowSet& set = sets[size_t(index)];
        const int64_t start = set.first * set.layout.groups;
        return {integers.data() + start * GROUP, scales.data() + start, sorted.data(), starts.data() + set.first + index,
                set.layout};
    }

   private:
    struct RowSet {
        int64_t first;
        RowLayout layout;
    };

    std::vector<RowSet> sets;
    std::vector<int8_t> integers;
    std::vector<GroupScale> scales;
    std::vector<Outlier> outliers, sorted;
    std::vector<int64_t> starts;  // of each set, one more than it has rows

    int64_t* starts_of(int64_t set) { return starts.data() + sets[size_t(set)].first + set; }

    // The outliers of all groups, of which most have none (input -1), as a RowBlock has them.
    void sort_outliers(const RowSet& set, int64_t* set_starts) {
        const RowLayout& layout = set.layout;
        for (int64_t first = 0, count; first < layout.count; first += count) {
            const int64_t block = first / ROW_BLOCK * ROW_BLOCK;
            count = rows_together(block + layout.height(block) - first);
            set_starts[first] = int64_t(sorted.size());
            for (int64_t group = 0; group < layout.groups; group++)
                for (int64_t row = 0; row < count; row++) {
                    const Outlier& outlier = outliers[size_t((set.first + first + row) * layout.groups + group)];
                    if (outlier.input >= 0) sorted.push_back({outlier.input, int32_t(row), outlier.number});
                }
        }
        set_starts[layout.count] = int64_t(sorted.size());
    }
};

int64_t packed_blocks(const PackedPart& part) { return (part.outputs + OUTPUTS - 1) / OUTPUTS; }

// rows [count, inputs]; parts one above the other; bias [outputs of all parts] or null -> out [count, outputs of all parts]
template <class T>
void packed_linear(const T* rows, const PackedPart* parts, int64_t part_count, const T* bias, T* out, int64_t count,
                   int64_t inputs, int64_t outputs, int64_t threads) {
    thread_local RowSets sets;
    sets.quantize(rows, &count, 1, inputs / GROUP, threads);
    const Rows quantized = sets[0];
    in_parallel(threads, [&](int64_t share, int64_t shares) {
        int64_t first = 0;  // output of a part
        for (const PackedPart* part = parts; part < parts + part_count; first += part++->outputs) {
            const int64_t blocks = packed_blocks(*part);
            const Output output{store_rows<T>, bias ? bias + first : nullptr, out + first, part->outputs, outputs};
            multiply_format(part->format, quantized, part->weights, int32_t(part->offset), blocks * share / shares,
                            blocks * (share + 1) / shares, output);
        }
    });
}

// Several layers of the same sizes, each times rows of its own or all times the same rows.
template <class T>
void packed_products(const T* rows, const PackedProduct* products, int64_t product_count, T* out, int64_t inputs,
                     int64_t outputs, int64_t has_same_rows, int64_t threads) {
    thread_local RowSets sets;
    thread_local std::vector<int64_t> counts;
    counts.clear();
    for (int64_t i = 0; i < product_count; i++) counts.push_back(products[i].count);
    sets.quantize(rows, counts.data(), has_same_rows ? 1 : product_count, inputs / GROUP, threads);
    struct Work {
        Rows rows;
        const PackedPart* part;
        Output output;
        int64_t first, last;  // packed blocks
    };
    thread_local std::vector<Work> work_buffer;
    std::vector<Work>& work = work_buffer;  // that of this thread, also for the others
    work.clear();
    for (int64_t i = 0; i < product_count; i++) {
        const PackedProduct& product = products[i];
        const Rows quantized = sets[has_same_rows ? 0 : i];
        int64_t first = 0;  // output of a part
        for (const PackedPart* part = product.parts; part < product.parts + product.part_count; first += part++->outputs) {
            const T* bias = static_cast<const T*>(product.bias);
            const Output output{store_rows<T>, bias ? bias + first : nullptr, out + first, part->outputs, outputs};
            const int64_t blocks = packed_blocks(*part);
            for (int64_t block = 0; block < blocks; block += SHARED_BLOCKS)
                work.push_back({quantized, part, output, block, std::min(block + SHARED_BLOCKS, blocks)});
        }
        out += product.count * outputs;
    }
    std::atomic<size_t> next{0};  // rows are shared unevenly by experts, so who is done takes what is left
    in_parallel(threads, [&](int64_t, int64_t) {
        for (size_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < work.size();) {
            const Work& each = work[index];
            multiply_format(each.part->format, each.rows, each.part->weights, int32_t(each.part->offset), each.first,
                            each.last, each.output);
        }
    });
}

}  // namespace

extern "C" {
EXPORT(packed_linear)
EXPORT(packed_products)

// Outputs that are packed together.
int64_t packed_outputs() { return OUTPUTS; }

// The bytes of so many outputs.
int64_t packed_block_bytes(int64_t file_format, int64_t inputs) {
    int64_t bytes = 0;
    with_file_format(file_format, [&](auto block) { bytes = decltype(block)::F::block_bytes(inputs / GROUP); });
    return bytes;
}

// rows of blocks as they are in a file [outputs, inputs] -> out [outputs / packed_outputs, packed_block_bytes], the last
// outputs 0.
void pack_blocks(const uint8_t* rows, uint8_t* out, int64_t outputs, int64_t inputs, int64_t file_format,
                 int64_t threads) {
    with_file_format(file_format, [&](auto block) {
        pack_rows<decltype(block)>(rows, out, outputs, inputs, threads);
    });
}
}
