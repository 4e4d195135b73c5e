"""The mixed-effect Gaussian process as the paper writes it: every interaction is a row of an n x n matrix."""

from __future__ import annotations

import numpy as np


class DenseGP:
    """kernel(X, Y), arm_cov (K, K), sigma (K, K), noise (K,), mean (K,); data as three equal lists."""

    def __init__(self, kernel, arm_cov, sigma, noise, mean, X, tasks, arms, rewards):
        self.kernel, self.arm_cov, self.sigma, self.noise, self.mean = kernel, arm_cov, sigma, noise, mean
        self.X, self.tasks, self.arms = X, np.asarray(tasks, int), np.asarray(arms, int)
        self.gap = np.asarray(rewards, float) - mean[self.arms]
        self.S = self.prior_f(self.tasks, self.arms, self.tasks, self.arms)
        self.S = self.S + self.prior_delta(self.tasks, self.arms, self.tasks, self.arms)
        self.S = self.S + np.diag(noise[self.arms])

    def prior_f(self, i, a, j, b):
        return self.kernel(self.X[i], self.X[j]) * self.arm_cov[np.ix_(a, b)]

    def prior_delta(self, i, a, j, b):
        return self.sigma[np.ix_(a, b)] * (np.asarray(i)[:, None] == np.asarray(j))

    def cells(self, tasks):
        """All arms of these tasks, task by task."""
        k = len(self.mean)
        return np.repeat(tasks, k), np.tile(np.arange(k), len(tasks))

    def predict(self, tasks, with_delta=True):
        """Mean and covariance of r (or of m + F) at all arms of these tasks, jointly."""
        i, a = self.cells(tasks)
        cross = self.prior_f(i, a, self.tasks, self.arms)
        prior = self.prior_f(i, a, i, a)
        if with_delta:
            cross = cross + self.prior_delta(i, a, self.tasks, self.arms)
            prior = prior + self.prior_delta(i, a, i, a)
        weights = np.linalg.solve(self.S, cross.T).T
        return self.mean[a] + weights @ self.gap, prior - weights @ cross.T

    @property
    def log_evidence(self):
        n = len(self.gap)
        log_det = np.linalg.slogdet(self.S)[1]
        return -0.5 * (n * np.log(2 * np.pi) + log_det + self.gap @ np.linalg.solve(self.S, self.gap))
