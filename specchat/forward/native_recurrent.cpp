// The recurrences of hybrid networks for a few rows: the gated delta rule, the scan of Mamba-2, short convolutions.
//
// One row after another changes the state of a head in float32, so a row has the same bits however many follow it. A
// part of the state that fits the first cache of the CPU takes all rows before the next part is loaded. The state is
// stored only if the caller wants it: rows of draft tokens may be rejected. The caller has checked shapes.

#include <vector>

#include "native_lanes.h"

namespace {

constexpr int COLUMNS = 32;  // of a state, which take all rows together
constexpr float NORM_EPSILON = 1e-6f;

// row / |row| * scale, in float32
template <class T>
void normalize(const T* row, float* out, int64_t size, float scale) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < size; i++) squares += to_float(row[i]) * to_float(row[i]);
    const float factor = scale / std::sqrt(squares + NORM_EPSILON);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) out[i] = to_float(row[i]) * factor;
}

// state [heads, keys, values], query and key [rows, key_heads, keys], value [rows, heads, values], the logarithms
// `decay` [rows, heads, decays] with one number for a head or for each of its keys, beta [rows, heads]
// -> out [rows, heads, values], which may be null.
template <class T>
void gated_delta(float* state, const T* query, const T* key, const T* value, const float* decay, const float* beta,
                 T* out, int64_t rows, int64_t heads, int64_t key_heads, int64_t keys, int64_t values, int64_t decays,
                 int stores, int64_t threads) {
    in_parallel(threads, [&](int64_t part, int64_t parts) {
        std::vector<float> queries(rows * keys), normal_keys(rows * keys), factors(rows * decays), block(keys * COLUMNS);
        for (int64_t head = part; head < heads; head += parts) {
            const int64_t key_head = head / (heads / key_heads);
            for (int64_t row = 0; row < rows; row++) {
                const int64_t source = (row * key_heads + key_head) * keys;
                normalize(query + source, &queries[row * keys], keys, 1.0f / std::sqrt(float(keys)));
                normalize(key + source, &normal_keys[row * keys], keys, 1.0f);
                for (int64_t i = 0; i < decays; i++)
                    factors[row * decays + i] = std::exp(decay[(row * heads + head) * decays + i]);
            }
            for (int64_t first = 0; first < values; first += COLUMNS) {
                const int64_t width = values - first < COLUMNS ? values - first : COLUMNS;
                float* columns = state + head * keys * values + first;
                for (int64_t i = 0; i < keys; i++)
                    for (int64_t j = 0; j < COLUMNS; j++) block[i * COLUMNS + j] = j < width ? columns[i * values + j] : 0;
                for (int64_t row = 0; row < rows; row++) {
                    const float *row_key = &normal_keys[row * keys], *row_query = &queries[row * keys];
                    const float* row_factors = &factors[row * decays];
                    const int64_t place = (row * heads + head) * values + first;
                    float known[COLUMNS] = {}, change[COLUMNS] = {}, sums[COLUMNS] = {};
                    for (int64_t i = 0; i < keys; i++) {
                        const float factor = row_factors[decays > 1 ? i : 0];
#pragma omp simd
                        for (int j = 0; j < COLUMNS; j++) {
                            block[i * COLUMNS + j] *= factor;
                            known[j] += block[i * COLUMNS + j] * row_key[i];
                        }
                    }
                    for (int64_t j = 0; j < width; j++)
                        change[j] = (to_float(value[place + j]) - known[j]) * beta[row * heads + head];
                    for (int64_t i = 0; i < keys; i++) {
#pragma omp simd
                        for (int j = 0; j < COLUMNS; j++) {
                            block[i * COLUMNS + j] += row_key[i] * change[j];
                            sums[j] += block[i * COLUMNS + j] * row_query[i];
                        }
                    }
                    if (out)
                        for (int64_t j = 0; j < width; j++) out[place + j] = from_float<T>(sums[j]);
                }
                if (stores)
                    for (int64_t i = 0; i < keys; i++)
                        for (int64_t j = 0; j < width; j++) columns[i * values + j] = block[i * COLUMNS + j];
            }
        }
    });
}

// state [heads, size, states], x [rows, heads, size], the step sizes dt [rows, heads], rates A [heads], B and C
// [rows, groups, states], skip D [heads] -> out [rows, heads, size], which may be null.
template <class T>
void mamba2_scan(float* state, const T* x, const float* dt, const float* rates, const T* B, const T* C,
                 const float* skip, T* out, int64_t rows, int64_t heads, int64_t groups, int64_t size, int64_t states,
                 int stores, int64_t threads) {
    in_parallel(threads, [&](int64_t part, int64_t parts) {
        std::vector<float> line(states), inputs(rows * states), reads(rows * states), factors(rows);
        for (int64_t head = part; head < heads; head += parts) {
            const int64_t group = head / (heads / groups);
            for (int64_t row = 0; row < rows; row++) {
                const int64_t source = (row * groups + group) * states;
                factors[row] = std::exp(dt[row * heads + head] * rates[head]);
                for (int64_t i = 0; i < states; i++) {
                    inputs[row * states + i] = to_float(B[source + i]) * dt[row * heads + head];
                    reads[row * states + i] = to_float(C[source + i]);
                }
            }
            for (int64_t place = head * size; place < (head + 1) * size; place++) {
                std::memcpy(line.data(), state + place * states, states * sizeof(float));
                for (int64_t row = 0; row < rows; row++) {
                    const float input = to_float(x[row * heads * size + place]), factor = factors[row];
                    const float *row_inputs = &inputs[row * states], *row_reads = &reads[row * states];
                    float* numbers = line.data();
                    float sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (int64_t i = 0; i < states; i++) {
                        numbers[i] = numbers[i] * factor + row_inputs[i] * input;
                        sum += numbers[i] * row_reads[i];
                    }
                    if (out) out[row * heads * size + place] = from_float<T>(sum + skip[head] * input);
                }
                if (stores) std::memcpy(state + place * states, line.data(), states * sizeof(float));
            }
        }
    });
}

// The last `rows` sums of a causal convolution of each channel. x [channels, columns], weight [channels, width], bias
// [channels], which may be null -> out [rows, channels].
template <class T>
void convolution(const T* x, const T* weight, const T* bias, T* out, int64_t rows, int64_t channels, int64_t columns,
                 int64_t width, int has_silu) {
    for (int64_t first = 0; first < channels; first += COLUMNS) {
        const int64_t count = channels - first < COLUMNS ? channels - first : COLUMNS;
        for (int64_t row = 0; row < rows; row++) {
            const T* window = x + first * columns + columns - rows + row - width + 1;
            float sums[COLUMNS] = {};
            for (int64_t channel = 0; channel < count; channel++) {
                sums[channel] = bias ? to_float(bias[first + channel]) : 0;
                for (int64_t i = 0; i < width; i++)
                    sums[channel] += to_float(window[channel * columns + i]) * to_float(weight[(first + channel) * width + i]);
            }
            if (has_silu) {
#pragma omp simd
                for (int channel = 0; channel < COLUMNS; channel++) sums[channel] /= 1.0f + exponential(-sums[channel]);
            }
            for (int64_t channel = 0; channel < count; channel++)
                out[row * channels + first + channel] = from_float<T>(sums[channel]);
        }
    }
}

}  // namespace

extern "C" {
EXPORT(gated_delta)
EXPORT(mamba2_scan)
EXPORT(convolution)
}
