/* The C twin of the compiled Thompson step of the linear mixed model with a diagonal task covariance: draw the
   coefficients, draw K arms, take the best, learn its reward. The same algorithm as kernels/linear.py, written by hand.
   Random normals: a 128-layer ziggurat over xoshiro256+ (Marsaglia & Tsang 2000; Blackman & Vigna 2018). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t S[4];
static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
static inline uint64_t next(void) {
    const uint64_t r = S[0] + S[3], t = S[1] << 17;
    S[2] ^= S[0]; S[3] ^= S[1]; S[1] ^= S[2]; S[0] ^= S[3]; S[2] ^= t; S[3] = rotl(S[3], 45);
    return r;
}
static inline double unit(void) { return (double)(next() >> 11) * 0x1.0p-53; }

#define LAYERS 128
#define TAIL 3.442619855899
static double X[LAYERS + 1], Y[LAYERS];
static void make_layers(void) {
    const double area = 9.91256303526217e-3;
    double f = exp(-0.5 * TAIL * TAIL);
    X[0] = area / f; X[1] = TAIL; X[LAYERS] = 0.0;
    for (int i = 2; i < LAYERS; i++) { X[i] = sqrt(-2.0 * log(area / X[i - 1] + f)); f = exp(-0.5 * X[i] * X[i]); }
    for (int i = 0; i < LAYERS; i++) Y[i] = X[i + 1] / X[i];
}
static double normal(void) {
    for (;;) {
        const uint64_t bits = next();
        const int i = (int)(bits & (LAYERS - 1));
        const double u = 2.0 * ((double)(bits >> 11) * 0x1.0p-53) - 1.0;
        if (fabs(u) < Y[i]) return u * X[i];
        if (i == 0) {
            double a, b;
            do { a = -log(1.0 - unit()) / TAIL; b = -log(1.0 - unit()); } while (b + b < a * a);
            return u < 0 ? -TAIL - a : TAIL + a;
        }
        const double x = u * X[i];
        const double f0 = exp(-0.5 * (X[i] * X[i] - x * x)), f1 = exp(-0.5 * (X[i + 1] * X[i + 1] - x * x));
        if (f1 + unit() * (f0 - f1) < 1.0) return x;
    }
}

void seed(uint64_t s) {
    for (int i = 0; i < 4; i++) {
        s += 0x9E3779B97F4A7C15ull;
        uint64_t z = s; z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull; z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        S[i] = z ^ (z >> 31);
    }
    make_layers();
}

/* factor (d, d + 1), root (d), rows (N, K d), counts and means (N, K), totals (2) */
void thompson(int n, int K, int d, double *factor, double *totals, const double *root, const double *rows,
              double *counts, double *means, double *within, double tau2, double noise,
              const int64_t *order, const double *truth, const double *errors, int64_t *chosen) {
    const int w = d + 1;
    double *theta = malloc(sizeof(double) * d), *x = malloc(sizeof(double) * w);
    for (int j = 0; j < n; j++) {
        const int64_t i = order[j];
        for (int k = d - 1; k >= 0; k--) {
            const double *row = factor + (size_t)k * w;
            double total = row[d] + normal();
            for (int l = k + 1; l < d; l++) total -= row[l] * theta[l];
            theta[k] = total / row[k];
        }
        for (int k = 0; k < d; k++) x[k] = root[k] * theta[k];
        int best = 0;
        double height = -INFINITY;
        const double *phi = rows + (size_t)i * K * d;
        for (int a = 0; a < K; a++) {
            const double b = noise / (noise + counts[i * K + a] * tau2);
            double prior = 0.0;
            for (int k = 0; k < d; k++) prior += phi[a * d + k] * x[k];
            const double value = b * prior + (1.0 - b) * means[i * K + a] + sqrt(tau2 * b) * normal();
            if (value > height) { height = value; best = a; }
        }
        chosen[j] = best;
        const int64_t c = i * K + best;
        const double y = truth[c] + errors[j], m = counts[c];
        const double b = noise / (noise + m * tau2), s = noise + tau2 * b, u = 1.0 / sqrt(s), gap = y - means[c];
        for (int k = 0; k < d; k++) x[k] = root[k] * phi[best * d + k] * b * u;
        x[d] = (gap + b * means[c]) * u;
        for (int k = 0; k < d; k++) {
            if (x[k] == 0.0) continue;
            double *row = factor + (size_t)k * w;
            const double r = sqrt(row[k] * row[k] + x[k] * x[k]), co = row[k] / r, si = x[k] / r;
            row[k] = r;
            for (int l = k + 1; l < w; l++) {
                const double t = row[l];
                row[l] = co * t + si * x[l];
                x[l] = co * x[l] - si * t;
            }
        }
        totals[0] += x[d] * x[d];
        totals[1] += log(s);
        within[best] += gap * gap * m / (m + 1.0);
        means[c] += gap / (m + 1.0);
        counts[c] = m + 1.0;
    }
    free(theta); free(x);
}
