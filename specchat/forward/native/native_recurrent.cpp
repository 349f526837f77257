// The recurrences of hybrid networks for a few rows: the gated delta rule and short convolutions.
//
// One row after another changes the state of a head in float32, so a row has the same bits however many follow it. A
// part of the state that fits the first cache of the CPU takes all rows before the next part is loaded. The state is
// stored only if the caller wants it: rows of draft tokens may be rejected. The rows may be the nodes of a tree, each of
// which continues the state of its parent. The caller has checked shapes.

#include <vector>

#include "native_lanes.h"

namespace {

constexpr int COLUMNS = 32, VECTORS = COLUMNS / LANES;  // of a state, which take all rows together
constexpr int PARTS = LANES == 16 ? 4 : 2;              // sums that do not wait for each other
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

// PARTS sums become one. No compiler may choose their order, so vectors are written out.
struct Sums {
    Floats parts[PARTS][VECTORS] = {};

    Floats total(int vector) const {
        Floats sum = parts[0][vector];
        for (int part = 1; part < PARTS; part++) sum += parts[part][vector];
        return sum;
    }
};

// What one head of the gated delta rule needs of every row: keys, queries, and what is left of the state for each key.
struct DeltaRows {
    std::vector<float> queries, keys, decayed_keys, factors;

    DeltaRows(int64_t rows, int64_t size)
        : queries(rows * size), keys(rows * size), decayed_keys(rows * size), factors(rows * size) {}
};

// One row over COLUMNS columns of a state [keys, COLUMNS]: what `from` knows of the key changes towards the value, into
// `to`, which may be `from`. The output is the sum over the new state times the query.
inline void delta_step(const DeltaRows& all, int64_t row, int64_t keys, const float* from, float* to, const float* value,
                       float beta, float* out) {
    const float *key = &all.keys[row * keys], *query = &all.queries[row * keys];
    const float *decayed = &all.decayed_keys[row * keys], *factors = &all.factors[row * keys];
    Sums known, sums;
    Floats change[VECTORS], block;
    const auto know = [&](int64_t i, int part) {
        for (int vector = 0; vector < VECTORS; vector++) {
            std::memcpy(&block, from + i * COLUMNS + vector * LANES, sizeof block);
            known.parts[part][vector] += block * decayed[i];
        }
    };
    const auto update = [&](int64_t i, int part) {
        for (int vector = 0; vector < VECTORS; vector++) {
            std::memcpy(&block, from + i * COLUMNS + vector * LANES, sizeof block);
            block = block * factors[i] + change[vector] * key[i];
            std::memcpy(to + i * COLUMNS + vector * LANES, &block, sizeof block);
            sums.parts[part][vector] += block * query[i];
        }
    };
    const auto for_keys = [&](const auto& step) {
        int64_t i = 0;
        for (; i + PARTS <= keys; i += PARTS)
            for (int part = 0; part < PARTS; part++) step(i + part, part);
        for (; i < keys; i++) step(i, 0);
    };
    for_keys(know);
    for (int vector = 0; vector < VECTORS; vector++) {
        Floats values;
        std::memcpy(&values, value + vector * LANES, sizeof values);
        change[vector] = (values - known.total(vector)) * beta;
    }
    for_keys(update);
    for (int vector = 0; vector < VECTORS; vector++) {
        const Floats total = sums.total(vector);
        std::memcpy(out + vector * LANES, &total, sizeof total);
    }
}

// state [heads, keys, values], query and key [rows, key_heads, keys], value [rows, heads, values], the logarithms
// `decay` [rows, heads, decays] with one number for a head or for each of its keys, beta [rows, heads]; `parents` [rows]
// of a tree, -1 for rows that continue `state`, or null for a chain
// -> out [rows, heads, values], and `new_state` after the last row, which may be `state`; both may be null.
template <class T>
void gated_delta(const float* state, const T* query, const T* key, const T* value, const float* decay, const float* beta,
                 const int64_t* parents, T* out, float* new_state, int64_t rows, int64_t heads, int64_t key_heads,
                 int64_t keys, int64_t values, int64_t decays, int64_t threads) {
    in_parallel(threads, [&](int64_t part, int64_t parts) {
        DeltaRows all(rows, keys);
        const int64_t block_size = keys * COLUMNS;
        std::vector<float> blocks(parents ? (rows + 1) * block_size : block_size);
        for (int64_t head = part; head < heads; head += parts) {
            const int64_t key_head = head / (heads / key_heads);
            for (int64_t row = 0; row < rows; row++) {
                const int64_t source = (row * key_heads + key_head) * keys, place = row * keys;
                normalize(query + source, &all.queries[place], keys, 1.0f / std::sqrt(float(keys)));
                normalize(key + source, &all.keys[place], keys, 1.0f);
                const float* row_decay = decay + (row * heads + head) * decays;
                for (int64_t i = 0; i < keys; i++) {
                    all.factors[place + i] = decays == 1 && i ? all.factors[place] : std::exp(row_decay[i]);
                    all.decayed_keys[place + i] = all.keys[place + i] * all.factors[place + i];
                }
            }
            for (int64_t first = 0; first < values; first += COLUMNS) {
                const int64_t width = values - first < COLUMNS ? values - first : COLUMNS;
                const int64_t columns = head * keys * values + first;
                for (int64_t i = 0; i < keys; i++)
                    for (int64_t j = 0; j < COLUMNS; j++)
                        blocks[i * COLUMNS + j] = j < width ? state[columns + i * values + j] : 0;
                float* last = blocks.data();
                for (int64_t row = 0; row < rows; row++) {
                    const int64_t place = (row * heads + head) * values + first;
                    const float* from = parents ? &blocks[(parents[row] + 1) * block_size] : last;
                    if (parents) last = &blocks[(row + 1) * block_size];
                    float row_values[COLUMNS] = {}, sums[COLUMNS];
                    for (int64_t j = 0; j < width; j++) row_values[j] = to_float(value[place + j]);
                    delta_step(all, row, keys, from, last, row_values, beta[row * heads + head], sums);
                    if (out)
                        for (int64_t j = 0; j < width; j++) out[place + j] = from_float<T>(sums[j]);
                }
                if (new_state)
                    for (int64_t i = 0; i < keys; i++)
                        for (int64_t j = 0; j < width; j++) new_state[columns + i * values + j] = last[i * COLUMNS + j];
            }
        }
    });
}

// The numbers of a and b are [rows, 2 heads], b first; rates and biases [heads] -> decay = rate * softplus(a + bias) and
// beta = sigmoid(b), [rows, heads] each.
template <class T>
void delta_gates(const T* projected, const float* rates, const float* biases, float* decay, float* beta, int64_t rows,
                 int64_t heads) {
    for (int64_t row = 0; row < rows; row++, projected += 2 * heads)
        for (int64_t head = 0; head < heads; head++) {
            const float step = to_float(projected[heads + head]) + biases[head];
            decay[row * heads + head] = rates[head] * (step > 20.0f ? step : std::log1p(std::exp(step)));
            beta[row * heads + head] = to_float(from_float<T>(1.0f / (1.0f + exponential(-to_float(projected[head])))));
        }
}

// RMS norm of each row, times silu(gate). rows and gates [count, size], weight [size] -> out [count, size]
template <class T>
void gated_rms_norm(const T* rows, const T* gates, const T* weight, T* out, int64_t count, int64_t size, float epsilon) {
    for (int64_t row = 0; row < count; row++, rows += size, gates += size, out += size) {
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < size; i++) squares += to_float(rows[i]) * to_float(rows[i]);
        const float scale = 1.0f / std::sqrt(squares / float(size) + epsilon);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            const float gate = to_float(gates[i]);
            out[i] = from_float<T>(to_float(rows[i]) * scale * to_float(weight[i]) * (gate / (1.0f + exponential(-gate))));
        }
    }
}

// A causal convolution of each channel: the sum of row r is over the rows `windows` [rows, width] of x [.., channels].
// weight [width, channels], bias [channels], which may be null -> out [rows, channels].
template <class T>
void convolution(const T* x, const int64_t* windows, const T* weight, const T* bias, T* out, int64_t rows,
                 int64_t channels, int64_t width, int has_silu) {
    for (int64_t row = 0; row < rows; row++, out += channels)
        for (int64_t first = 0; first < channels; first += COLUMNS) {
            const int64_t count = channels - first < COLUMNS ? channels - first : COLUMNS;
            float sums[COLUMNS] = {};
            if (bias)
                for (int64_t i = 0; i < count; i++) sums[i] = to_float(bias[first + i]);
            for (int64_t place = 0; place < width; place++) {
                const T *numbers = x + windows[row * width + place] * channels + first;
                const T *weights = weight + place * channels + first;
#pragma omp simd
                for (int64_t i = 0; i < count; i++) sums[i] += to_float(numbers[i]) * to_float(weights[i]);
            }
            if (has_silu) {
#pragma omp simd
                for (int i = 0; i < COLUMNS; i++) sums[i] /= 1.0f + exponential(-sums[i]);
            }
#pragma omp simd
            for (int64_t i = 0; i < count; i++) out[first + i] = from_float<T>(sums[i]);
        }
}

}  // namespace

extern "C" {
EXPORT(gated_delta)
EXPORT(delta_gates)
EXPORT(gated_rms_norm)
EXPORT(convolution)
}
