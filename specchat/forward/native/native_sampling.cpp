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

constexpr float MAX_NOISE = 22.19f;      // -log(-log1p(-2^-32))
constexpr float NOISE_OF_BIT = 0.6932f;  // log 2, rounded up
constexpr int EXPONENT_BITS = 24;        // these four: engine/truncation.py
constexpr double EXPONENT_STEPS = 24204406;
constexpr float MOST_STEPS = float(int64_t(32) << EXPONENT_BITS);
constexpr uint64_t COEFFICIENTS[] = {2147483648, 1488522040, 515878638, 119168800, 20577645, 2743350, 236085};
constexpr int TOP_P_BITS = 24;
constexpr double UNITS = 0x1p31;         // of the probability of the best column
constexpr int BLOCK = 64;                // columns with one maximum
constexpr double SHORTLISTS[] = {1e-3, 1e-6, 0};  // the least probability of the tokens that top-p looks at
constexpr int SORTED_TOGETHER = 32;

struct Candidate {
    float logit;
    uint32_t units;  // of probability, where they are needed
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

inline uint32_t random_bits(const uint32_t* keys, int32_t token) {
    return hash_bits(hash_bits(uint32_t(token) + keys[0]) ^ keys[1]) & 0x7FFFFFFF;
}

inline float gumbel_noise(uint32_t bits) {
    const float uniform = std::min((float(bits) + 0.5f) * 0x1p-31f, 1 - 0x1p-24f);
    return -std::log(-std::log1p(-uniform));
}

// The units of a column whose logit is so far from the largest one, in 2**-24 of an exponent of 2.
inline uint64_t probability_units(float distance) {
    const int32_t steps = int32_t(distance < MOST_STEPS ? distance : MOST_STEPS);
    const uint64_t fraction = uint32_t(steps) & ((1u << EXPONENT_BITS) - 1);
    uint64_t units = COEFFICIENTS[6];
    for (int term = 5; term >= 0; term--) units = COEFFICIENTS[term] - (units * fraction >> EXPONENT_BITS);
    return units >> (steps >> EXPONENT_BITS);
}

// A row of logits as floats, without what is masked.
class Row {
   public:
    template <class T>
    void load(const T* logits, const uint8_t* allowed, int64_t columns) {
        const int64_t blocks = (columns + BLOCK - 1) / BLOCK;
        numbers.assign(size_t(blocks * BLOCK), -INFINITY);
        units.clear();
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

    // Computes the units of probability of all columns; returns their sum. In integers, whose sums have no order.
    uint64_t weigh(double temperature) {
        units.assign(numbers.size(), 0);
        const float steps_of_one = float(EXPONENT_STEPS / temperature);
        uint64_t sum = 0;
        for (size_t block = 0; block < maxima.size(); block++) {
            if (!((largest - maxima[block]) * steps_of_one < MOST_STEPS)) continue;
            const float* from = numbers.data() + block * BLOCK;
            uint32_t* to = units.data() + block * BLOCK;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < BLOCK; i++) {
                const uint64_t unit = probability_units((largest - from[i]) * steps_of_one);
                to[i] = uint32_t(unit);
                sum += unit;
            }
        }
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
                    visit(Candidate{numbers[column], units.empty() ? 0 : units[column], int32_t(column)});
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
    std::vector<float> numbers, maxima;  // of each block
    std::vector<uint32_t> units;
    float largest = 0;
};

// What some columns together must have of the units of all.
inline int64_t units_to_keep(uint64_t total, double top_p) {
    const uint64_t share = std::max(uint64_t(top_p * (1 << TOP_P_BITS)), uint64_t(1));
    return int64_t((total >> TOP_P_BITS) * share + ((total & ((1 << TOP_P_BITS) - 1)) * share >> TOP_P_BITS));
}

// Keeps the fewest of the best candidates that have so many units together. To halve them again and again takes less
// time than to sort all.
void cut_top_p(std::vector<Candidate>& candidates, int64_t missing) {
    auto first = candidates.begin(), last = candidates.end();
    while (last - first > SORTED_TOGETHER) {
        const auto middle = first + (last - first) / 2;
        std::nth_element(first, middle, last);
        int64_t found = 0;
        for (auto each = first; each < middle; each++) found += each->units;
        if (found >= missing)
            last = middle;
        else
            missing -= found, first = middle;
    }
    std::sort(first, last);
    while (first < last && missing > 0) missing -= (first++)->units;
    candidates.erase(first, candidates.end());
}

// The candidates of top-p. The shortlist grows until it has enough probability.
void find_nucleus(Row& row, const Rules& rules, std::vector<Candidate>& kept) {
    const uint64_t total = row.weigh(rules.temperature);
    const int64_t limit = units_to_keep(total, rules.top_p);
    for (const double least : SHORTLISTS) {
        int64_t found = 0;
        kept.clear();
        const double floor = row.maximum() + rules.temperature * std::log(least * double(total) / UNITS);
        row.for_each_from(float(floor), [&](Candidate each) {
            kept.push_back(each);
            found += each.units;
        });
        if (found >= limit) break;
    }
    cut_top_p(kept, limit);
}

void keep_top_k(Row& row, const Rules& rules, std::vector<Candidate>& kept) {
    row.highest(rules.top_k, kept);
    if (rules.top_p >= 1) return;
    const float steps_of_one = float(EXPONENT_STEPS / rules.temperature);
    uint64_t total = 0;
    for (Candidate& each : kept) {
        each.units = uint32_t(probability_units((row.maximum() - each.logit) * steps_of_one));
        total += each.units;
    }
    cut_top_p(kept, units_to_keep(total, rules.top_p));
}

struct Ranked {
    float score;
    int32_t column;

    bool operator<(const Ranked& other) const {  // better ones first
        return score > other.score || (score == other.score && column < other.column);
    }
};

// The best of some candidates with noise, the best first. Leading zeros of the random bits bound the noise, so its
// logarithms are not computed where it cannot make a candidate one of them.
class NoisyBest {
   public:
    NoisyBest(std::vector<Ranked>& best, size_t count, const Rules& rules, const uint32_t* keys, const int64_t* tokens)
        : best(best), count(count), temperature(float(rules.temperature)), keys(keys), tokens(tokens) {
        best.clear();
    }

    void add(Candidate each) {
        const float scaled = each.logit / temperature;
        if (best.size() == count && scaled + MAX_NOISE < lowest()) return;
        const uint32_t bits = random_bits(keys, tokens ? int32_t(tokens[each.column]) : each.column);
        const float most = float(__builtin_clz(bits | 1) + 1) * NOISE_OF_BIT;
        if (best.size() == count && scaled + most < lowest()) return;
        const Ranked ranked{scaled + gumbel_noise(bits), each.column};
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
    const float least = rules.min_p > 0 ? largest + float(rules.temperature * std::log(rules.min_p)) : -INFINITY;
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
