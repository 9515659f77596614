"""What goes into a fit: rows in every form, kernels over them, labels, codes, folds; and how foreign files are read."""
