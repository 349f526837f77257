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

struct Ranked {
    float score;
    int32_t column;

    bool operator<(const Ranked& other) const {  // better ones first
        return score > other.score || (score == other.score && column < other.column);
    }
};

// The best of some candidates with noise, the best first. Noise is bounded, so it is not computed where it cannot make
// a candidate one of them.
class NoisyBest {
   public:
    NoisyBest(std::vector<Ranked>& best, size_t count, const Rules& rules, const uint32_t* keys, const int64_t* tokens)
        : best(best), count(count), temperature(float(rules.temperature)), keys(keys), tokens(tokens) {
        best.clear();
    }

    void add(Candidate each) {
        const float scaled = each.logit / temperature;
        if (best.size() == count && scaled + MAX_NOISE < lowest()) return;
        const int32_t token = tokens ? int32_t(tokens[each.column]) : each.column;
        const Ranked ranked{scaled + gumbel_noise(keys, token), each.column};
        if (best.size() == count) {
            if (!(ranked < best.back())) return;
            best.pop_back();
        }
        best.insert(std::upper_bound(best.begin(), best.end(), ranked), ranked);
    }

    float lowest() const { return best.back().score; }

   private:
    std::vector<Ranked>& best;
    const size_t count;
    const float temperature;
    const uint32_t* keys;
    const int64_t* tokens;  // of the columns; null: the columns are tokens
};

// What a thread needs memory for.
struct Workspace {
    Row row;
    std::vector<Candidate> kept;
    std::vector<Ranked> best;
};

// Ranks the `count` best columns of a row, or as many as the rules allow.
void rank_row(Workspace& space, const Rules& rules, size_t count, const uint32_t* keys, const int64_t* tokens) {
    Row& row = space.row;
    const float largest = row.maximum(), temperature = float(rules.temperature);
    if (rules.temperature <= 0) {
        row.highest(int64_t(count), space.kept);
        space.best.clear();
        for (const Candidate& each : space.kept) space.best.push_back({each.logit, each.column});
        return;
    }
    NoisyBest best(space.best, count, rules, keys, tokens);
    const float least = rules.min_p > 0 ? float(largest + rules.temperature * std::log(rules.min_p)) : -INFINITY;
    if (rules.top_k > 0 || rules.top_p < 1) {
        rules.top_k > 0 ? keep_top_k(row, rules, space.kept) : find_nucleus(row, rules, space.kept);
        for (const Candidate& each : space.kept)
            if (each.logit >= least) best.add(each);
        return;
    }
    row.highest(int64_t(count), space.kept);
    for (const Candidate& each : space.kept) best.add(each);
    const float floor = (best.lowest() - MAX_NOISE) * temperature;
    space.best.clear();
    row.for_each_from(floor > least ? floor : least, [&](Candidate each) { best.add(each); });
}

// Calls rank(row number, workspace) for each row of logits, shared out to threads.
template <class T, class Rank>
void for_each_row(const T* logits, const Rules& rules, const uint8_t* allowed, int64_t count, int64_t stride,
                  int64_t mask_stride, int64_t threads, const Rank& rank) {
    in_parallel(count > 1 ? threads : 1, [&](int64_t part, int64_t parts) {
        thread_local Workspace space;
        for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
            space.row.load(logits + i * stride, allowed ? allowed + i * mask_stride : nullptr, rules.columns);
            rank(i, space);
        }
    });
}

// The first column with the largest logit, and whether that is a finite number. No copy of the row is made: one of a
// vocabulary of 262144 tokens would take longer than to look at it.
template <class T>
void sample_greedily(const T* logits, int64_t columns, int64_t* sample) {
    constexpr int64_t CHUNK = 16 * BLOCK;
    float largest = -INFINITY;
    int64_t start = 0;  // of the chunk with the largest
    int32_t undefined = 0;
    for (int64_t first = 0; first < columns; first += CHUNK) {
        const int64_t last = std::min(first + CHUNK, columns);
        float most = -INFINITY;
#pragma omp simd reduction(max : most) reduction(+ : undefined)
        for (int64_t i = first; i < last; i++) {
            const float logit = to_float(logits[i]);
            most = logit > most ? logit : most;
            undefined += logit != logit;
        }
        if (most > largest) largest = most, start = first;
    }
    sample[1] = !undefined && std::isfinite(largest);
    while (sample[1] && to_float(logits[start]) != largest) start++;
    sample[0] = sample[1] ? start : 0;
}

// logits [count, stride]; keys [count, 2]; allowed [count, mask_stride] or null -> samples [count, 2]: the token, and
// whether its score is a finite number.
template <class T>
void sample_rows(const T* logits, const Rules* rules, const uint32_t* keys, const uint8_t* allowed, int64_t* samples,
                 int64_t count, int64_t stride, int64_t mask_stride, int64_t threads) {
    if (rules->temperature <= 0 && !allowed)
        return in_parallel(count > 1 ? threads : 1, [&](int64_t part, int64_t parts) {
            for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++)
                sample_greedily(logits + i * stride, rules->columns, samples + 2 * i);
        });
    for_each_row(logits, *rules, allowed, count, stride, mask_stride, threads, [&](int64_t i, Workspace& space) {
        int64_t* sample = samples + 2 * i;
        sample[0] = 0;
        sample[1] = std::isfinite(space.row.maximum());
        if (!sample[1]) return;
        rank_row(space, *rules, 1, keys + 2 * i, nullptr);
        sample[0] = space.best[0].column;
    });
}

// The `ranks` best columns of each row and their scores [count, ranks]; that of a column that the rules do not allow is
// -inf. The noise of a column is that of its token: tokens [columns], or null where the columns are tokens.
template <class T>
void rank_rows(const T* logits, const Rules* rules, const uint32_t* keys, const int64_t* tokens, int64_t* columns,
               float* scores, int64_t ranks, int64_t count, int64_t stride, int64_t threads) {
    for_each_row(logits, *rules, nullptr, count, stride, 0, threads, [&](int64_t i, Workspace& space) {
        space.best.clear();
        if (std::isfinite(space.row.maximum())) rank_row(space, *rules, size_t(ranks), keys + 2 * i, tokens);
        for (int64_t rank = 0; rank < ranks; rank++) {
            const bool is_found = rank < int64_t(space.best.size());
            const Ranked ranked = is_found ? space.best[size_t(rank)] : Ranked{-INFINITY, 0};
            columns[i * ranks + rank] = ranked.column;
            scores[i * ranks + rank] = ranked.score;
        }
    });
}

}  // namespace

extern "C" {
EXPORT(sample_rows)
EXPORT(rank_rows)
}
