// Softmax attention over a KV cache: RoPE and the writing of keys and values, scores, softmax, values.
//
// The result of a row has the same bits whatever other rows are in the pass, whether the row is in a chain or in a tree,
// and for every number of threads: its sums go over the keys that it sees in the order of their positions, and a key
// that it does not see adds exactly 0. So a draft tree is verified with the numbers of plain decoding.
//
// The cache holds numbers of the passes, or int8: then a row of a head is followed by its scale, a float32
// (engine/int8_rows.py), and becomes floats in registers.

#include "native_kernels.h"

namespace {

constexpr int MAX_HEAD_SIZE = 512;
constexpr int64_t MIN_PARALLEL_PRODUCTS = 1 << 15;  // with fewer, waking a thread takes longer than the work
constexpr int64_t KEY_BLOCKS = 8;                   // blocks of LANES keys that are transposed at once
constexpr int64_t PREFETCH_ROWS = 32;               // of keys or values
constexpr int64_t MIN_BLOCK_ROWS = 8, MAX_BLOCK_ROWS = 64;  // whose scores are in memory together in a long pass

// The numbers between two rows of a head in the cache.
template <class Stored>
constexpr int64_t row_stride(int size) {
    return std::is_same_v<Stored, int8_t> ? size + int(sizeof(float)) : size;
}

// Fetches what lies some rows after these numbers: a CPU does not see that both halves of all rows will be read.
template <class Stored>
inline void fetch_row(const Stored* numbers, int size) {
    __builtin_prefetch(numbers + PREFETCH_ROWS * row_stride<Stored>(size));
}

template <class T>
inline void store_row(const T* numbers, T* out, int size) {
    std::memcpy(out, numbers, sizeof(T) * size);
}

template <class T>
inline void store_row(const T* numbers, int8_t* out, int size) {
    float largest = 0;
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < size; i++) {
        const float magnitude = std::fabs(to_float(numbers[i]));
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = largest / 127.0f, step = scale > 0 ? scale : 1.0f;
#pragma omp simd
    for (int i = 0; i < size; i++) out[i] = int8_t(std::nearbyint(to_float(numbers[i]) / step));
    std::memcpy(out + size, &scale, sizeof scale);
}

inline float load_scale(const int8_t* row, int size) {
    float scale;
    std::memcpy(&scale, row + size, sizeof scale);
    return scale;
}

// RMS norm of one head, skipped without a weight, then RoPE of its first numbers: half-split layout, the first half of
// `sin` is negative.
template <class T>
void norm_rope_head(const T* head, const T* weight, const T* cos, const T* sin, T* out, int size, int rotary,
                    float epsilon, float offset) {
    T normed[MAX_HEAD_SIZE];
    if (weight) {
        rms_norm_row(head, weight, normed, size, epsilon, offset);
        head = normed;
    }
    const int half = rotary / 2;
    std::memcpy(out + rotary, head + rotary, sizeof(T) * (size - rotary));
#pragma omp simd
    for (int i = 0; i < half; i++) {
        const float first = to_float(head[i]), second = to_float(head[i + half]);
        out[i] = from_float<T>(first * to_float(cos[i]) + second * to_float(sin[i]));
        out[i + half] = from_float<T>(second * to_float(cos[i + half]) + first * to_float(sin[i + half]));
    }
}

// states [count, heads + 2 kv_heads, size]; cos, sin [count, rotary] -> queries [heads, count, size], and keys and values
// in the rows of a KV cache: `stride` numbers lie between two of its heads. With 0 kv_heads nothing is written there.
template <class T, class Stored>
void qk_norm_rope(const T* states, const T* q_norm, const T* k_norm, const T* v_norm, const T* cos, const T* sin,
                  T* queries, Stored* keys, Stored* values, int64_t count, int heads, int kv_heads, int size,
                  int rotary, int64_t stride, float epsilon, float offset) {
    const int64_t row_size = row_stride<Stored>(size);
    T rotated[MAX_HEAD_SIZE], normed[MAX_HEAD_SIZE];
    for (int64_t row = 0; row < count; row++, cos += rotary, sin += rotary) {
        for (int head = 0; head < heads; head++, states += size)
            norm_rope_head(states, q_norm, cos, sin, queries + (head * count + row) * size, size, rotary, epsilon,
                           offset);
        for (int head = 0; head < kv_heads; head++, states += size) {
            norm_rope_head(states, k_norm, cos, sin, rotated, size, rotary, epsilon, offset);
            store_row(rotated, keys + head * stride + row * row_size, size);
        }
        for (int head = 0; head < kv_heads; head++, states += size) {
            if (v_norm) rms_norm_row(states, v_norm, normed, size, epsilon, offset);
            store_row(v_norm ? normed : states, values + head * stride + row * row_size, size);
        }
    }
}

// The first `size` numbers of a vector, and zeros after them.
template <class Vector, class T>
inline Vector load_vector(const T* numbers, int size) {
    Vector result{};
    if (size == LANES)
        std::memcpy(&result, numbers, sizeof result);  // a known size: one instruction
    else
        std::memcpy(&result, numbers, sizeof(T) * size);
    return result;
}

// The same words of two vectors side by side: the lower or the upper halves. A loop over words takes 30 times as long
// with some compilers.
template <bool UPPER>
inline Words interleave(Words first, Words second) {
#if __has_builtin(__builtin_shufflevector) && defined(__AVX512F__)
    if (UPPER)
        return __builtin_shufflevector(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return __builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif __has_builtin(__builtin_shufflevector)
    if (UPPER) return __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
    return __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    Words result;
    constexpr int from = UPPER ? LANES / 2 : 0;
    for (int i = 0; i < LANES / 2; i++) result[2 * i] = first[from + i], result[2 * i + 1] = second[from + i];
    return result;
#endif
}

// Interleaves each vector with the one half the block further on, log2(COUNT) times.
template <int COUNT>
inline void interleave_rounds(Words (&rows)[LANES]) {
    Words next[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; i++) {
        next[2 * i] = interleave<false>(rows[i], rows[i + LANES / 2]);
        next[2 * i + 1] = interleave<true>(rows[i], rows[i + LANES / 2]);
    }
    if constexpr (COUNT > 2) interleave_rounds<COUNT / 2>(next);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) rows[i] = next[i];
}

inline Floats load_floats(const float* numbers, int size) { return load_vector<Floats>(numbers, size); }

inline Floats load_floats(const bfloat16* numbers, int size) {
    const Halves halves = load_vector<Halves>(numbers, size);
#if defined(__AVX512F__)
    return (Floats)((Words)_mm512_cvtepu16_epi32((__m256i)halves) << 16);
#elif defined(__AVX2__)
    return (Floats)((Words)_mm256_cvtepu16_epi32((__m128i)halves) << 16);
#else
    return (Floats)(__builtin_convertvector(halves, Words) << 16);
#endif
}

inline Floats load_floats(const int8_t* numbers, int size) {
    const Bytes bytes = load_vector<Bytes>(numbers, size);
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)bytes));
#elif defined(__AVX2__)
    __m128i low{};
    std::memcpy(&low, &bytes, sizeof bytes);
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
#else
    return __builtin_convertvector(bytes, Floats);
#endif
}

// The first `size` numbers of a stored row from a word of T on, as LANES words of T. Steps of int8 are whole numbers,
// which bfloat16 holds exactly.
template <class T>
inline Words load_words(const T* row, int word, int size) {
    return load_vector<Words>(reinterpret_cast<const uint32_t*>(row) + word, size);
}

template <class T>
inline Words load_words(const int8_t* row, int word, int size) {
    if constexpr (INPUTS_PER_WORD<T> == 1) return (Words)load_floats(row + word, size);
    const int first = 2 * word, low = 2 * size < LANES ? 2 * size : LANES, high = 2 * size - low;
    const Floats front = load_floats(row + first, low), back = load_floats(row + first + LANES, high);
#if defined(__AVX512BF16__)
    return (Words)_mm512_cvtne2ps_pbh((__m512)back, (__m512)front);
#else
    bfloat16 pairs[2 * LANES];
    for (int i = 0; i < LANES; i++) pairs[i] = from_float<bfloat16>(front[i]), pairs[LANES + i] = from_float<bfloat16>(back[i]);
    Words words;
    std::memcpy(&words, pairs, sizeof words);
    return words;
#endif
}

// Stored keys [LANES, size] -> [words, LANES] words of T; rows from `key_count` on are zero; log2(LANES) rounds of
// interleaving transpose a block.
template <class T, class Stored>
void transpose_keys(const Stored* keys, int64_t key_count, int size, uint32_t* out) {
    const int words = size / INPUTS_PER_WORD<T>;
    for (int first = 0; first < words; first += LANES) {
        const int width = words - first < LANES ? words - first : LANES;
        Words rows[LANES];
        for (int key = 0; key < LANES; key++)
            fetch_row(keys + key * row_stride<Stored>(size) + first * INPUTS_PER_WORD<T>, size);
        for (int key = 0; key < LANES; key++)
            rows[key] = key < key_count ? load_words<T>(keys + key * row_stride<Stored>(size), first, width) : Words{};
        interleave_rounds<LANES>(rows);
        if (width == LANES)
            std::memcpy(out + first * LANES, rows, sizeof rows);  // a known size: registers are stored
        else
            std::memcpy(out + first * LANES, rows, 4 * LANES * width);
    }
}

// Scores of all rows for the blocks of LANES keys in [first, last). queries [rows, size] -> scores [rows, row_length]
template <class T, class Stored>
void compute_scores(const T* queries, const Stored* keys, float* scores, int64_t rows, int size, int64_t kv_length,
                    int64_t row_length, int64_t first, int64_t last) {
    const int words = size / INPUTS_PER_WORD<T>;
    alignas(64) uint32_t transposed[KEY_BLOCKS * LANES * MAX_HEAD_SIZE];
    float scales[KEY_BLOCKS * LANES] = {};
    for (int64_t start = first; start < last; start += KEY_BLOCKS) {
        const int64_t blocks = last - start < KEY_BLOCKS ? last - start : KEY_BLOCKS;
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t key = (start + block) * LANES;
            const Stored* first_key = keys + key * row_stride<Stored>(size);
            transpose_keys<T>(first_key, kv_length - key, size, transposed + block * words * LANES);
            if constexpr (std::is_same_v<Stored, int8_t>)
                for (int64_t i = 0; i < LANES && key + i < kv_length; i++)
                    scales[block * LANES + i] = load_scale(first_key + i * row_stride<Stored>(size), size);
        }
        for_tiles(rows, blocks, [&](int64_t row, int64_t block, auto row_count, auto block_count) {
            constexpr int ROWS = decltype(row_count)::value, BLOCKS = decltype(block_count)::value;
            Floats sums[ROWS][BLOCKS];
            multiply_tile(queries + row * size, size, transposed + block * words * LANES, words * LANES, words, sums);
            if constexpr (std::is_same_v<Stored, int8_t>)
                for (int j = 0; j < BLOCKS; j++) {
                    const Floats block_scales = load_vector<Floats>(scales + (block + j) * LANES, LANES);
                    for (int i = 0; i < ROWS; i++) sums[i][j] *= block_scales;
                }
            for (int i = 0; i < ROWS; i++)
                std::memcpy(scores + (row + i) * row_length + (start + block) * LANES, sums[i], sizeof sums[i]);
        });
    }
}

// Softmax over the keys that a row sees, in place; the others get 0. Lanes are summed by position, so that a path
// through a tree sums the lanes of a chain, and added up from the row's own position on: where a sliding window hides
// the first new keys, those after them are counted from the committed ones. Loops run over whole vectors: `row_length`
// is a multiple of LANES. A sink is a score that takes its share of the softmax and has no value; -INFINITY is none.
void softmax(float* scores, const uint8_t* allowed, int64_t committed, int64_t kv_length, int64_t row_length,
             float scale, float cap, float sink) {
    float largest = -INFINITY, total = 0;
    if (cap > 0) {
#pragma omp simd
        for (int64_t i = 0; i < row_length; i++) scores[i] = cap * hyperbolic_tangent(scores[i] * scale / cap);
        scale = 1;
    }
    for (int64_t i = kv_length; i < row_length; i++) scores[i] = -INFINITY;
    if (allowed)
        for (int64_t i = 0; i < kv_length; i++) scores[i] = allowed[i] ? scores[i] : -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < row_length; i++) largest = scores[i] > largest ? scores[i] : largest;
    largest = sink / scale > largest ? sink / scale : largest;
#pragma omp simd
    for (int64_t i = 0; i < row_length; i++) scores[i] = exponential((scores[i] - largest) * scale);
    float lanes[LANES] = {};
    int64_t position = 0;
    for (; position + LANES <= committed; position += LANES)
        for (int lane = 0; lane < LANES; lane++) lanes[lane] += scores[position + lane];
    for (; position < committed; position++) lanes[position % LANES] += scores[position];
    for (int64_t column = committed; column < kv_length; column++)
        if (!allowed || allowed[column]) lanes[position++ % LANES] += scores[column];
    if (position == committed)  // padded passes: the row itself is not among the last
        while (position > 0 && allowed && !allowed[position - 1]) position--;
    for (int lane = 0; lane < LANES; lane++) total += lanes[(position + lane) % LANES];
    if (sink > -INFINITY) total += exponential(sink - largest * scale);
    const float inverse = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < row_length; i++) scores[i] *= inverse;
}

// The weighted sum of values, for ROWS rows and the numbers [first, first + LANES * VECTORS) of a head.
template <int ROWS, int VECTORS, class Stored>
void sum_values(const float* weights, int64_t row_length, const Stored* values, int64_t kv_length, int size,
                int first, float* sums) {
    Floats totals[ROWS][VECTORS] = {};
    const int tail = VECTORS > 1 || size - first > LANES ? LANES : size - first;  // more than one vector are whole ones
    for (int64_t key = 0; key < kv_length; key++) {
        Floats numbers[VECTORS];
        const Stored* value = values + key * row_stride<Stored>(size);
        fetch_row(value + first, size);
        for (int i = 0; i < VECTORS; i++) numbers[i] = load_floats(value + first + i * LANES, tail);
        if constexpr (std::is_same_v<Stored, int8_t>)
            for (int i = 0; i < VECTORS; i++) numbers[i] *= load_scale(value, size);
        for (int row = 0; row < ROWS; row++) {
            const float weight = weights[row * row_length + key];
            for (int i = 0; i < VECTORS; i++) totals[row][i] += numbers[i] * weight;
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < VECTORS; i++) {
            const Floats total = totals[row][i];  // a copy: of numbers with an address, compilers store each sum
            std::memcpy(sums + row * size + first + i * LANES, &total, 4 * tail);
        }
}

// Values of all rows, for one slice of two vectors (or less, at the end of a head).
template <class Stored>
void sum_slice(const float* weights, int64_t rows, int64_t row_length, const Stored* values, int64_t kv_length,
               int size, int first, float* sums) {
    int64_t row = 0;
    const auto group = [&](auto group_size) {
        constexpr int ROWS = decltype(group_size)::value;
        for (; row + ROWS <= rows; row += ROWS) {
            const float* from = weights + row * row_length;
            if (size - first >= 2 * LANES)
                sum_values<ROWS, 2>(from, row_length, values, kv_length, size, first, sums + row * size);
            else
                for (int part = first; part < size; part += LANES)
                    sum_values<ROWS, 1>(from, row_length, values, kv_length, size, part, sums + row * size);
        }
    };
    if (LANES == 16) group(std::integral_constant<int, 8>());
    group(std::integral_constant<int, 4>());
    group(std::integral_constant<int, 3>());
    group(std::integral_constant<int, 2>());
    group(std::integral_constant<int, 1>());
}

// What attention reads and writes. Query heads that share a key head are rows of it, one head after the other.
template <class T, class Stored>
struct AttentionPass {
    const T* queries;
    const Stored *keys, *values;
    const uint8_t* allowed;
    T* out;
    int64_t count;
    int heads, kv_heads, size;
    int64_t stride, kv_length;
    float scale, cap;
    const T* sinks;

    int64_t rows() const { return heads / kv_heads * count; }  // of a key head
    int64_t key_blocks() const { return (kv_length + LANES - 1) / LANES; }
    int64_t row_length() const { return (key_blocks() | 1) * LANES; }  // an odd number: rows fall into different sets of a cache
    int64_t slices() const { return (size + 2 * LANES - 1) / (2 * LANES); }

    // The steps for `number` rows of all key heads, from `row` of the first on: their scores for some blocks of keys,
    // the softmax, a slice of the sums over values, and what is stored.
    void score(int64_t row, int64_t number, int64_t first, int64_t last, float* scores) const {
        compute_scores(queries + row * size, keys + row / rows() * stride, scores, number, size, kv_length,
                       row_length(), first, last);
    }

    void normalize(int64_t row, int64_t number, float* scores) const {
        for (int64_t i = row; i < row + number; i++, scores += row_length())
            softmax(scores, allowed ? allowed + i % count * kv_length : nullptr, kv_length - count, kv_length,
                    row_length(), scale, cap, sinks ? to_float(sinks[i / count]) : -INFINITY);
    }

    void sum(int64_t row, int64_t number, int64_t slice, const float* weights, float* sums) const {
        sum_slice(weights, number, row_length(), values + row / rows() * stride, kv_length, size,
                  int(slice) * 2 * LANES, sums);
    }

    void store(int64_t row, int64_t number, const float* sums) const {
        for (int64_t i = row; i < row + number; i++, sums += size)
            for (int j = 0; j < size; j++) out[(i % count * heads + i / count) * size + j] = from_float<T>(sums[j]);
    }

    // Threads share the keys, then the rows, then the numbers of a head: few rows leave nothing else to share.
    void run_together(int64_t threads) const {
        thread_local std::vector<float> buffer;
        const int64_t of_head = rows(), all = kv_heads * of_head;
        float *scores = sized(buffer, all * (row_length() + size)), *sums = scores + all * row_length();
        const int64_t workers = all * kv_length * size < MIN_PARALLEL_PRODUCTS ? 1 : threads;
        share_tasks(workers, kv_heads * key_blocks(), key_blocks(), [&](int64_t head, int64_t first, int64_t last) {
            score(head * of_head, of_head, first, last, scores + head * of_head * row_length());
        });
        share_tasks(workers, all, all, [&](int64_t, int64_t first, int64_t last) {
            normalize(first, last - first, scores + first * row_length());
        });
        share_tasks(workers, kv_heads * slices(), slices(), [&](int64_t head, int64_t first, int64_t last) {
            for (int64_t slice = first; slice < last; slice++)
                sum(head * of_head, of_head, slice, scores + head * of_head * row_length(), sums + head * of_head * size);
        });
        store(0, all, sums);
    }

    // Threads share blocks of rows, whose scores stay in the cache of a core.
    void run_in_blocks(int64_t block_rows, int64_t threads) const {
        const int64_t of_head = rows(), blocks = (of_head + block_rows - 1) / block_rows;
        share_tasks(threads, kv_heads * blocks, blocks, [&](int64_t head, int64_t first, int64_t last) {
            thread_local std::vector<float> buffer;
            float *scores = sized(buffer, block_rows * (row_length() + size)), *sums = scores + block_rows * row_length();
            for (int64_t block = first; block < last; block++) {
                const int64_t start = block * block_rows, row = head * of_head + start;
                const int64_t number = of_head - start < block_rows ? of_head - start : block_rows;
                score(row, number, 0, key_blocks(), scores);
                normalize(row, number, scores);
                for (int64_t slice = 0; slice < slices(); slice++) sum(row, number, slice, scores, sums);
                store(row, number, sums);
            }
        });
    }

    // Calls work(group, first, last) for ranges of the tasks of each group, in each thread for consecutive ones.
    template <class Work>
    static void share_tasks(int64_t threads, int64_t tasks, int64_t group_tasks, const Work& work) {
        in_parallel(threads, [&](int64_t part, int64_t parts) {
            const int64_t end = tasks * (part + 1) / parts;
            for (int64_t task = tasks * part / parts; task < end;) {
                const int64_t first = task % group_tasks;
                const int64_t last = end - task < group_tasks - first ? first + end - task : group_tasks;
                work(task / group_tasks, first, last);
                task += last - first;
            }
        });
    }
};

// queries [heads, count, size]; keys, values [kv_heads, .., size], their first `kv_length` rows, of which the last
// `count` are those of the pass; `allowed` [count, kv_length] says which a row sees, and null is all -> out
// [count, heads, size]. Scores are products times `scale`; with a `cap` above 0 they become cap * tanh(score / cap).
// `sinks` [heads] may be null.
template <class T, class Stored>
void attention(const T* queries, const Stored* keys, const Stored* values, const uint8_t* allowed, T* out, int64_t count,
               int heads, int kv_heads, int size, int64_t stride, int64_t kv_length, int64_t threads,
               float scale, float cap, const T* sinks) {
    const AttentionPass<T, Stored> pass{queries, keys,   values,    allowed, out, count, heads, kv_heads, size,
                                        stride,  kv_length, scale, cap, sinks};
    const int64_t shared = kv_heads * pass.rows() / (2 * threads);
    const int64_t block_rows = shared < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : shared < MAX_BLOCK_ROWS ? shared : MAX_BLOCK_ROWS;
    if (pass.rows() <= block_rows)
        pass.run_together(threads);
    else
        pass.run_in_blocks(block_rows, threads);
}

}  // namespace

#define EXPORT_CACHED(NAME)                                    \
    decltype(&NAME<float, float>) NAME##_float32 = NAME;          \
    decltype(&NAME<bfloat16, bfloat16>) NAME##_bfloat16 = NAME;   \
    decltype(&NAME<float, int8_t>) NAME##_int8_float32 = NAME;    \
    decltype(&NAME<bfloat16, int8_t>) NAME##_int8_bfloat16 = NAME;

extern "C" {
EXPORT_CACHED(qk_norm_rope)
EXPORT_CACHED(attention)
}
