// The operations between two matmuls of a layer: RMS norm, SwiGLU, GeGLU, soft caps.
//
// Each function is one loop over rows that computes in float32 and rounds once, when it stores. A row has the same bits
// for every number of rows. One thread computes everything: for the few rows of a decoding pass the work takes
// microseconds, waking more threads takes longer. The functions know addresses and counts; the caller has checked them. native_ops.py compiles this file.

#include "native_kernels.h"

namespace {

template <class T>
void rms_norm(const T* rows, const T* weight, T* out, int64_t count, int64_t size, float epsilon, float offset) {
    for (int64_t row = 0; row < count; row++)
        rms_norm_row(rows + row * size, weight, out + row * size, size, epsilon, offset);
}

template <class T>
void add_rms_norm(const T* rows, const T* residual, const T* weight, T* sum, T* out, int64_t count, int64_t size,
                  float epsilon, float offset) {
    for (int64_t row = 0; row < count; row++, rows += size, residual += size, sum += size, out += size) {
#pragma omp simd
        for (int64_t i = 0; i < size; i++) sum[i] = from_float<T>(to_float(rows[i]) + to_float(residual[i]));
        rms_norm_row(sum, weight, out, size, epsilon, offset);
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

// gelu(x) = x * (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
template <class T>
void gelu_and_mul(const T* gate_up, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, gate_up += 2 * size, out += size) {
        const T* up = gate_up + size;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            const float gate = to_float(gate_up[i]);
            const float power = 1.5957691216f * (gate + 0.044715f * gate * gate * gate);
            out[i] = from_float<T>(gate / (1.0f + exponential(-power)) * to_float(up[i]));
        }
    }
}

// The SwiGLU of gpt-oss: min(gate, limit) * sigmoid(alpha * gate) * (1 + up), with up between -limit and limit.
template <class T>
void clamped_swiglu(const T* gate_up, T* out, int64_t count, int64_t size, float alpha, float limit) {
    for (int64_t row = 0; row < count; row++, gate_up += 2 * size, out += size) {
        const T* ups = gate_up + size;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            float gate = to_float(gate_up[i]), up = to_float(ups[i]);
            gate = gate > limit ? limit : gate;  // NaN stays NaN
            up = up > limit ? limit : up < -limit ? -limit : up;
            out[i] = from_float<T>(gate / (1.0f + exponential(-alpha * gate)) * (1.0f + up));
        }
    }
}

// rows * sigmoid(gates), [count, size] each
template <class T>
void sigmoid_gate(const T* rows, const T* gates, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, rows += size, gates += size, out += size) {
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            out[i] = from_float<T>(to_float(rows[i]) / (1.0f + exponential(-to_float(gates[i]))));
    }
}

template <class T>
void soft_cap(const T* rows, T* out, int64_t count, int64_t size, float cap) {
    for (int64_t row = 0; row < count; row++, rows += size, out += size) {
#pragma omp simd
        for (int64_t i = 0; i < size; i++) out[i] = from_float<T>(cap * hyperbolic_tangent(to_float(rows[i]) / cap));
    }
}

}  // namespace

extern "C" {
EXPORT(rms_norm)
EXPORT(add_rms_norm)
EXPORT(silu_and_mul)
EXPORT(gelu_and_mul)
EXPORT(clamped_swiglu)
EXPORT(sigmoid_gate)
EXPORT(soft_cap)
}
