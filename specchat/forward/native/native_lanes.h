// What the native kernels share: numbers and their conversion to float, vectors, and torch's threads.
//
// A vector has LANES floats, as many as a register of this CPU holds. Sums are always in the order that the code says:
// vector arithmetic is written out, so that no compiler may choose another order for another number of rows.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

#if defined(__AVX512F__)
constexpr int LANES = 16, SUM_REGISTERS = 16;  // of 32 registers, half hold sums
#else
constexpr int LANES = 8, SUM_REGISTERS = 8;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));

struct bfloat16 {
    uint16_t bits;
};

inline float to_float(float number) { return number; }

inline float to_float(bfloat16 number) {
    const uint32_t bits = uint32_t(number.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

template <class T>
inline T from_float(float number);

template <>
inline float from_float(float number) {
    return number;
}

// Rounds to nearest, ties to even; NaN stays NaN.
template <>
inline bfloat16 from_float(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};
}

// e^x within two units in the last place, and 0 where the result would be denormal. There is no branch and no call, so
// the compiler can vectorize loops over it (the polynomial of Cephes' expf).
inline float exponential(float x) {
    const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float whole = std::nearbyint(clamped * 1.44269504f);
    const float rest = clamped - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const int32_t bits = (int32_t(whole) + 127) * (1 << 23);
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : sum * power;
}

// tanh with an error of a few units of 1e-7.
inline float hyperbolic_tangent(float x) { return 2.0f / (1.0f + exponential(-2.0f * x)) - 1.0f; }

// The weight is `offset` + weight: some networks store weight - 1.
template <class T>
inline void rms_norm_row(const T* row, const T* weight, T* out, int64_t size, float epsilon, float offset) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < size; i++) squares += to_float(row[i]) * to_float(row[i]);
    const float scale = 1.0f / std::sqrt(squares / float(size) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) out[i] = from_float<T>(to_float(row[i]) * scale * (to_float(weight[i]) + offset));
}

// torch's own threads, where its OpenMP library has this entry (Linux); starting others beside them would cost time.
extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
__attribute__((weak)) int omp_get_thread_num();
__attribute__((weak)) int omp_get_num_threads();
}

// Calls work(part, parts) for every part, each in a thread of its own.
template <class Work>
void in_parallel(int64_t threads, const Work& work) {
    if (threads < 2 || !GOMP_parallel || !omp_get_thread_num || !omp_get_num_threads) return work(0, 1);
    const auto run = [](void* context) {
        (*static_cast<const Work*>(context))(omp_get_thread_num(), omp_get_num_threads());
    };
    GOMP_parallel(run, const_cast<Work*>(&work), unsigned(threads), 0);
}

// The activations that are multiplied with one vector of weights, and the sum of that product with others. A Word of
// bfloat16 weights holds two inputs of one output, one of float weights holds one.
#if defined(__AVX512BF16__)
typedef uint32_t BFloat16Inputs;

inline BFloat16Inputs load_inputs(const bfloat16* row) {
    BFloat16Inputs pair;
    std::memcpy(&pair, row, sizeof pair);
    return pair;
}

inline Floats multiply_add(Floats sums, Words weights, BFloat16Inputs pair) {
    return (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(int(pair)));
}
#else
struct BFloat16Inputs {
    float first, second;
};

inline BFloat16Inputs load_inputs(const bfloat16* row) { return {to_float(row[0]), to_float(row[1])}; }

inline Floats multiply_add(Floats sums, Words weights, BFloat16Inputs pair) {
    sums += (Floats)(weights << 16) * pair.first;
    sums += (Floats)(weights & 0xffff0000u) * pair.second;
    return sums;
}
#endif

inline float load_inputs(const float* row) { return row[0]; }

inline Floats multiply_add(Floats sums, Words weights, float input) { return sums + (Floats)weights * input; }

template <class T>
constexpr int INPUTS_PER_WORD = 4 / sizeof(T);

// Weights are fetched so many words ahead, for so many rows and more: CPUs with AVX512 are faster without it for fewer.
constexpr int PREFETCH_WORDS = 32, PREFETCH_MIN_ROWS = LANES == 16 ? 4 : 1;

// ROWS rows times BLOCKS blocks of LANES outputs. rows [ROWS, words]; weights [BLOCKS, words, LANES], each block
// `block_stride` words after the one before -> sums. The order of a sum depends on neither ROWS nor BLOCKS.
template <int ROWS, int BLOCKS, class T>
inline void multiply_tile(const T* rows, int64_t row_stride, const uint32_t* weights, int64_t block_stride,
                          int64_t words, Floats (&sums)[ROWS][BLOCKS]) {
    for (int row = 0; row < ROWS; row++)
        for (int block = 0; block < BLOCKS; block++) sums[row][block] = Floats{};
    for (int64_t word = 0; word < words; word++) {
        Words loaded[BLOCKS];
        for (int block = 0; block < BLOCKS; block++) {
            const uint32_t* from = weights + block * block_stride + word * LANES;
            if (ROWS >= PREFETCH_MIN_ROWS) __builtin_prefetch(from + PREFETCH_WORDS * LANES);
            std::memcpy(&loaded[block], from, sizeof(Words));
        }
        for (int row = 0; row < ROWS; row++) {
            const auto inputs = load_inputs(rows + row * row_stride + word * INPUTS_PER_WORD<T>);
            for (int block = 0; block < BLOCKS; block++)
                sums[row][block] = multiply_add(sums[row][block], loaded[block], inputs);
        }
    }
}

// Calls tile(row, block) with the number of rows and blocks as types, for all rows and blocks of a matrix, in groups
// that fit the registers: many blocks for few rows, few for many.
template <class Tile>
void for_tiles(int64_t rows, int64_t blocks, const Tile& tile) {
    int64_t row = 0;
    const auto group = [&](auto size) {
        constexpr int ROWS = decltype(size)::value, BLOCKS = SUM_REGISTERS / ROWS < 8 ? SUM_REGISTERS / ROWS : 8;
        for (; row + ROWS <= rows; row += ROWS) {
            int64_t block = 0;
            for (; block + BLOCKS <= blocks; block += BLOCKS) tile(row, block, size, std::integral_constant<int, BLOCKS>());
            for (; block < blocks; block++) tile(row, block, size, std::integral_constant<int, 1>());
        }
    };
    if (LANES == 16) {
        group(std::integral_constant<int, 8>());
        group(std::integral_constant<int, 7>());
        group(std::integral_constant<int, 6>());
        group(std::integral_constant<int, 5>());
    }
    group(std::integral_constant<int, 4>());
    group(std::integral_constant<int, 3>());
    group(std::integral_constant<int, 2>());
    group(std::integral_constant<int, 1>());
}

// Each kernel is exported as a function pointer with the name of its dtype: rms_norm_float32, rms_norm_bfloat16, …
#define EXPORT(NAME)                                 \
    decltype(&NAME<float>) NAME##_float32 = NAME<float>; \
    decltype(&NAME<bfloat16>) NAME##_bfloat16 = NAME<bfloat16>;
