"""Engines: compiled loops over rows in any storage, which know no method's name. Cython's headers are internal.

    vector check                        sums of one order; bounds checks of raw pointers
    rows on_rows on_features scores     the accessor of rows, its dispatch over storages; scores and sums of rows
    renumber                            rows with the frequent features side by side
    simd simd_table simd_body           a row over all classes, in vectors
    piecewise softplus margin_loss      losses of the margin: of pieces, smooth, either
    joint_loss block_problem            losses of k scores; the problem of one row
    shrinking rng iterates              which rows a sweep visits, in which order; weights and their companions
    dual_engine margin_cd block_cd      dual coordinate descent: what all share, one dual a row, a block a row
    batch_cd asgd smooth                up to 8 binary problems at once; stochastic gradients; smooth losses
    admm proximal margin_newton block_newton    other ways to the same optima, for few features
    cholesky tile decimal               X'DX and its factor; numbers as text
"""
