// The operations between two matmuls of a layer, for the few rows of a decoding pass: RMS norm, RoPE, SwiGLU,
// attention, and the quantization around integer matmuls.
//
// Each function is one loop over rows that computes in float32 and rounds once, when it stores. A row has the same bits
// for every number of rows. One thread computes everything: the work takes microseconds, waking more threads takes
// longer. The functions know addresses and counts; the caller has checked them. native_ops.py compiles this file.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int MAX_HEAD_SIZE = 512;

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

template <class T>
void rms_norm_row(const T* row, const T* weight, T* out, int64_t size, float epsilon) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < size; i++) squares += to_float(row[i]) * to_float(row[i]);
    const float scale = 1.0f / std::sqrt(squares / float(size) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) out[i] = from_float<T>(to_float(row[i]) * scale * to_float(weight[i]));
}

template <class T>
void rms_norm(const T* rows, const T* weight, T* out, int64_t count, int64_t size, float epsilon) {
    for (int64_t row = 0; row < count; row++) rms_norm_row(rows + row * size, weight, out + row * size, size, epsilon);
}

template <class T>
void add_rms_norm(const T* rows, const T* residual, const T* weight, T* sum, T* out, int64_t count, int64_t size,
                  float epsilon) {
    for (int64_t row = 0; row < count; row++, rows += size, residual += size, sum += size, out += size) {
#pragma omp simd
        for (int64_t i = 0; i < size; i++) sum[i] = from_float<T>(to_float(rows[i]) + to_float(residual[i]));
        rms_norm_row(sum, weight, out, size, epsilon);
    }
}

template <class T>
void silu_and_mul(const T* gate_up, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, gate_up += 2 * size, out += size) {
        const T* up = gate_up + size;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            const float gate = to_float(gate_up[i]);
            out[i] = from_float<T>(gate / (1.0f + exponential(-gate)) * to_float(up[i]));
        }
    }
}

// RMS norm of one head, skipped without a weight, then RoPE: half-split layout, the first half of `sin` is negative.
template <class T>
void norm_rope_head(const T* head, const T* weight, const T* cos, const T* sin, T* out, int size, float epsilon) {
    T normed[MAX_HEAD_SIZE];
    if (weight) {
        rms_norm_row(head, weight, normed, size, epsilon);
        head = normed;
    }
    const int half = size / 2;
#pragma omp simd
    for (int i = 0; i < half; i++) {
        const float first = to_float(head[i]), second = to_float(head[i + half]);
        out[i] = from_float<T>(first * to_float(cos[i]) + second * to_float(sin[i]));
        out[i + half] = from_float<T>(second * to_float(cos[i + half]) + first * to_float(sin[i + half]));
    }
}

// states [count, heads + 2 kv_heads, size]; cos, sin [count, size] -> queries [heads, count, size], and keys and values
// in the rows of a KV cache: `stride` numbers lie between two of its heads.
template <class T>
void qk_norm_rope(const T* states, const T* q_norm, const T* k_norm, const T* cos, const T* sin, T* queries, T* keys,
                  T* values, int64_t count, int heads, int kv_heads, int size, int64_t stride, float epsilon) {
    for (int64_t row = 0; row < count; row++, cos += size, sin += size) {
        for (int head = 0; head < heads; head++, states += size)
            norm_rope_head(states, q_norm, cos, sin, queries + (head * count + row) * size, size, epsilon);
        for (int head = 0; head < kv_heads; head++, states += size)
            norm_rope_head(states, k_norm, cos, sin, keys + head * stride + row * size, size, epsilon);
        for (int head = 0; head < kv_heads; head++, states += size)
            std::memcpy(values + head * stride + row * size, states, sizeof(T) * size);
    }
}

void softmax(float* scores, int64_t kv_length) {
    float largest = -INFINITY, total = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < kv_length; i++) largest = scores[i] > largest ? scores[i] : largest;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < kv_length; i++) total += scores[i] = exponential(scores[i] - largest);
    const float scale = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < kv_length; i++) scores[i] *= scale;
}

// queries [heads, count, size]; keys, values [kv_heads, .., size], their first `kv_length` rows; `mask`
// [count, kv_length] is added to the scores and may be null -> out [count, heads, size]. `scratch` holds
// heads / kv_heads * count * (2 size + kv_length) floats. Query heads that share a key head are computed together, so
// that each key and each value is converted to float once.
template <class T>
void attention(const T* queries, const T* keys, const T* values, const T* mask, T* out, int64_t count, int heads,
               int kv_heads, int size, int64_t stride, int64_t kv_length, float* scratch) {
    const int queries_per_kv = heads / kv_heads;
    const int64_t rows = queries_per_kv * count;
    const float scale = 1.0f / std::sqrt(float(size));
    float *scaled_queries = scratch, *weighted_values = scaled_queries + rows * size;
    float *scores = weighted_values + rows * size, key_or_value[MAX_HEAD_SIZE];
    for (int group = 0; group < kv_heads; group++, keys += stride, values += stride, queries += rows * size) {
        for (int64_t i = 0; i < rows * size; i++)
            scaled_queries[i] = to_float(queries[i]) * scale, weighted_values[i] = 0;
        for (int64_t key = 0; key < kv_length; key++) {
            for (int i = 0; i < size; i++) key_or_value[i] = to_float(keys[key * size + i]);
            for (int64_t row = 0; row < rows; row++) {
                float score = 0;
                const float* query = scaled_queries + row * size;
#pragma omp simd reduction(+ : score)
                for (int i = 0; i < size; i++) score += query[i] * key_or_value[i];
                scores[row * kv_length + key] = score;
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            float* row_scores = scores + row * kv_length;
            const T* mask_row = mask ? mask + row % count * kv_length : nullptr;
            if (mask_row)
                for (int64_t key = 0; key < kv_length; key++) row_scores[key] += to_float(mask_row[key]);
            softmax(row_scores, kv_length);
        }
        for (int64_t value = 0; value < kv_length; value++) {
            for (int i = 0; i < size; i++) key_or_value[i] = to_float(values[value * size + i]);
            for (int64_t row = 0; row < rows; row++) {
                const float weight = scores[row * kv_length + value];
                float* sum = weighted_values + row * size;
#pragma omp simd
                for (int i = 0; i < size; i++) sum[i] += weight * key_or_value[i];
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            T* to = out + (row % count * heads + group * queries_per_kv + row / count) * size;
            for (int i = 0; i < size; i++) to[i] = from_float<T>(weighted_values[row * size + i]);
        }
    }
}

// Bytes around `zero_point`, at most `max_value` away from it, with one scale for each row.
template <class T>
void quantize(const T* rows, uint8_t* quantized, float* scales, int64_t count, int64_t size, int max_value,
              int zero_point) {
    for (int64_t row = 0; row < count; row++, rows += size, quantized += size) {
        float largest = 1e-12f;
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < size; i++) {
            const float magnitude = std::fabs(to_float(rows[i]));
            largest = magnitude > largest ? magnitude : largest;
        }
        const float scale = scales[row] = largest / float(max_value);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            quantized[i] = uint8_t(int32_t(std::nearbyint(to_float(rows[i]) / scale)) + zero_point);
    }
}

// Integer matmul results times the scale of their row, plus the bias, which may be null.
template <class T>
void dequantize(const float* sums, const float* scales, const T* bias, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, sums += size, out += size) {
        const float scale = scales[row];
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            out[i] = from_float<T>(sums[i] * scale + (bias ? to_float(bias[i]) : 0.0f));
    }
}

}  // namespace

// Each kernel is exported as a function pointer with the name of its dtype: rms_norm_float32, rms_norm_bfloat16, …
#define EXPORT(NAME)                   \
    auto NAME##_float32 = NAME<float>; \
    auto NAME##_bfloat16 = NAME<bfloat16>;

extern "C" {
EXPORT(rms_norm)
EXPORT(add_rms_norm)
EXPORT(silu_and_mul)
EXPORT(qk_norm_rope)
EXPORT(attention)
EXPORT(quantize)
EXPORT(dequantize)
}
