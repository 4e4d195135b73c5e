"""The test suite; a package, so that its helpers have names of their own."""
