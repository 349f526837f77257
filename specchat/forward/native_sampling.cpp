// The token after each row of logits, by the rules of engine/sampling.py: the highest logit, or a sample with shared
// randomness (Gumbel noise) of what temperature, top-k, top-p and min-p leave.
//
// A row is sampled alone, so it has the same token whatever other rows are in the pass. Equal logits are ranked by their
// columns, and probabilities are added as integers, as engine/truncation.py does.

#include <algorithm>
#include <limits>
#include <vector>

#include "native_kernels.h"

namespace {

constexpr float MAX_NOISE = 16.64f;      // sampling.py
constexpr double UNITS = 0x1p40;         // of a probability of 1
constexpr int BLOCK = 64;                // columns with one maximum
constexpr double SHORTLISTS[] = {1e-3, 1e-6, 0};  // the least probability of the tokens that top-p looks at
constexpr int SORTED_TOGETHER = 32;

// Numbers of 8 bytes only, so that Python describes them without gaps.
struct Rules {
    double temperature, top_p, min_p;  // 0: the highest logit; 1 and 0: nothing is left out
    int64_t top_k;                     // 0: all
    int64_t columns;                   // that may be sampled; those after them are padding
};

struct Candidate {
    float logit, weight;  // e^((logit - the largest) / temperature), where it is needed
    int32_t column;

    bool operator<(const Candidate& other) const {  // better ones first
        return logit > other.logit || (logit == other.logit && column < other.column);
    }
};

inline uint32_t hash_bits(uint32_t bits) {
    bits = (bits ^ bits >> 16) * 0x21F0AAADu;
    bits = (bits ^ bits >> 15) * 0x735A2D97u;
    return bits ^ bits >> 15;
}

inline float gumbel_noise(const uint32_t* keys, int32_t token) {
    const uint32_t bits = hash_bits(hash_bits(uint32_t(token) + keys[0]) ^ keys[1]) & 0x7FFFFFFF;
    const float uniform = std::min((float(bits) + 0.5f) * 0x1p-31f, 1 - 0x1p-24f);
    return -std::log(-std::log1p(-uniform));
}

// A row of logits as floats, without what is masked.
class Row {
   public:
    template <class T>
    void load(const T* logits, const uint8_t* allowed, int64_t columns) {
        const int64_t blocks = (columns + BLOCK - 1) / BLOCK;
        numbers.assign(size_t(blocks * BLOCK), -INFINITY);
        weights.clear();
        maxima.resize(size_t(blocks));
        float* to = numbers.data();
        if (allowed)
            for (int64_t i = 0; i < columns; i++) to[i] = allowed[i] ? to_float(logits[i]) : -INFINITY;
        else
            for (int64_t i = 0; i < columns; i++) to[i] = to_float(logits[i]);
        int32_t undefined = 0;
        largest = -INFINITY;
        for (int64_t block = 0; block < blocks; block++) {
            const float* from = to + block * BLOCK;
            float most = -INFINITY;
#pragma omp simd reduction(max : most) reduction(+ : undefined)
            for (int i = 0; i < BLOCK; i++) {
                most = from[i] > most ? from[i] : most;
                undefined += from[i] != from[i];
            }
            maxima[size_t(block)] = most;
            largest = most > largest ? most : largest;
        }
        if (undefined) largest = std::numeric_limits<float>::quiet_NaN();
    }

    float maximum() const { return largest; }

    // Computes the weights of all columns; returns their sum.
    float weigh(float temperature) {
        weights.resize(numbers.size());
        float lanes[LANES] = {};
        const float inverse = 1 / temperature;
        for (size_t first = 0; first < numbers.size(); first += LANES)
#pragma omp simd
            for (int lane = 0; lane < LANES; lane++) {
                const float weight = exponential((numbers[first + size_t(lane)] - largest) * inverse);
                weights[first + size_t(lane)] = weight;
                lanes[lane] += weight;
            }
        float sum = 0;
        for (const float lane : lanes) sum += lane;
        return sum;
    }

    // Calls visit(candidate) for the columns with at least this logit, in their order.
    template <class Visit>
    void for_each_from(float floor, const Visit& visit) const {
        for (size_t block = 0; block < maxima.size(); block++) {
            if (!(maxima[block] >= floor)) continue;
            for (int i = 0; i < BLOCK; i++) {
                const size_t column = block * BLOCK + size_t(i);
                if (numbers[column] >= floor && numbers[column] > -INFINITY)
                    visit(Candidate{numbers[column], weights.empty() ? 0 : weights[column], int32_t(column)});
            }
        }
    }

    int32_t first_highest() const {
        int32_t first = 0;
        bool is_found = false;
        for_each_from(largest, [&](Candidate each) {
            if (!is_found) first = each.column;
            is_found = true;
        });
        return first;
    }

    // The `count` highest logits, the highest first: they are in blocks whose maxima are the highest.
    void highest(int64_t count, std::vector<Candidate>& kept) const {
        kept.clear();
        std::vector<float> ranked(maxima);
        const size_t last = std::min(size_t(count), ranked.size()) - 1;
        std::nth_element(ranked.begin(), ranked.begin() + std::ptrdiff_t(last), ranked.end(), std::greater<float>());
        const float floor = size_t(count) <= ranked.size() ? ranked[last] : -INFINITY;
        for_each_from(floor, [&](Candidate each) { kept.push_back(each); });
        std::sort(kept.begin(), kept.end());
        if (int64_t(kept.size()) > count) kept.resize(size_t(count));
    }

   private:
    std::vector<float> numbers, weights, maxima;  // of each block
    float largest = 0;
};

inline int64_t units_of(const Candidate& candidate, double total) { return int64_t(candidate.weight / total * UNITS); }

// Keeps the fewest of the best candidates that have `top_p` of the total weight together. To halve them again and again
// takes less time than to sort all.
void cut_top_p(std::vector<Candidate>& candidates, double top_p, double total) {
    int64_t missing = std::llround(top_p * UNITS);
    auto first = candidates.begin(), last = candidates.end();
    while (last - first > SORTED_TOGETHER) {
        const auto middle = first + (last - first) / 2;
        std::nth_element(first, middle, last);
        int64_t found = 0;
        for (auto each = first; each < middle; each++) found += units_of(*each, total);
        if (found >= missing)
            last = middle;
        else
            missing -= found, first = middle;
    }
    std::sort(first, last);
    while (first < last && missing > 0) missing -= units_of(*first++, total);
    candidates.erase(first, candidates.end());
}

// The candidates of top-p. The shortlist grows until it has enough probability.
void find_nucleus(Row& row, const Rules& rules, std::vector<Candidate>& kept) {
    const double total = row.weigh(float(rules.temperature));
    const int64_t limit = std::llround(rules.top_p * UNITS);
    for (const double least : SHORTLISTS) {
        int64_t found = 0;
        kept.clear();
        row.for_each_from(float(row.maximum() + rules.temperature * std::log(least * total)), [&](Candidate each) {
            kept.push_back(each);
            found += units_of(each, total);
        });
        if (found >= limit) break;
    }
    cut_top_p(kept, rules.top_p, total);
}

void keep_top_k(Row& row, const Rules& rules, std::vector<Candidate>& kept) {
    if (rules.top_p < 1) row.weigh(float(rules.temperature));
    row.highest(rules.top_k, kept);
    if (rules.top_p >= 1) return;
    double total = 0;
    for (const Candidate& each : kept) total += each.weight;
    cut_top_p(kept, rules.top_p, total);
}

// The best of some candidates with noise. Equal scores are ranked by column. Noise is bounded, so it is not computed
// where it cannot make a candidate the best.
struct NoisyBest {
    const uint32_t* keys;
    float temperature, score = -INFINITY;
    int32_t column = 0;

    float add(Candidate each) {
        const float scaled = each.logit / temperature;
        if (scaled + MAX_NOISE < score) return score;
        const float noisy = scaled + gumbel_noise(keys, each.column);
        if (noisy > score || (noisy == score && each.column < column)) score = noisy, column = each.column;
        return noisy;
    }
};

// The token after a row, and whether its score is finite.
void sample_row(Row& row, const Rules& rules, const uint32_t* keys, std::vector<Candidate>& kept, int64_t* sample) {
    const float largest = row.maximum(), temperature = float(rules.temperature);
    sample[0] = 0;
    sample[1] = std::isfinite(largest);
    if (!sample[1]) return;
    sample[0] = row.first_highest();
    if (rules.temperature <= 0) return;
    NoisyBest best{keys, temperature};
    const float least = rules.min_p > 0 ? float(largest + rules.temperature * std::log(rules.min_p)) : -INFINITY;
    if (rules.top_k > 0 || rules.top_p < 1) {
        rules.top_k > 0 ? keep_top_k(row, rules, kept) : find_nucleus(row, rules, kept);
        for (const Candidate& each : kept)
            if (each.logit >= least) best.add(each);
    } else {
        const float lowest = best.add({largest, 0, int32_t(sample[0])});
        const float floor = (lowest - MAX_NOISE) * temperature;
        row.for_each_from(floor > least ? floor : least, [&](Candidate each) { best.add(each); });
    }
    sample[0] = best.column;
}

// logits [count, stride]; keys [count, 2]; allowed [count, mask_stride] or null -> samples [count, 2]: the token, and
// whether its score is a finite number.
template <class T>
void sample_rows(const T* logits, const Rules* rules, const uint32_t* keys, const uint8_t* allowed, int64_t* samples,
                 int64_t count, int64_t stride, int64_t mask_stride, int64_t threads) {
    in_parallel(count > 1 ? threads : 1, [&](int64_t part, int64_t parts) {
        thread_local Row row;
        thread_local std::vector<Candidate> kept;
        for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
            row.load(logits + i * stride, allowed ? allowed + i * mask_stride : nullptr, rules->columns);
            sample_row(row, *rules, keys + 2 * i, kept, samples + 2 * i);
        }
    });
}

}  // namespace

extern "C" {
EXPORT(sample_rows)
}
