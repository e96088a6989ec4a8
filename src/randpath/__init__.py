"""randpath teaches an image classifier new classes without its old data: Adaptive RPS-Net.

The paper's letters, as the code uses them inside equations:

    k, K        task number (from 1), number of tasks
    L, M        layers, parallel modules a layer
    P           path: one module a layer, an L x M matrix of 0 and 1
    P_fixed     what was frozen at the last switch
    P_tr        P xor (P and P_fixed): what is trained
    P_ts        P_fixed or P: what answers at inference
    N           candidate paths tried after a switch
    tau         weight of a module's output in the last layer (attention)
    I, mu_sat   element-wise maximum of per-image squared gradients; relative saturation
    S           the tasks after which the path was switched; S_0 the first
    phi, gamma  weight of the distillation loss (the controller) and its scale
    q, q'       logits of the network and of its previous state (the teacher)
    A_k         accuracy on the test images of all classes seen, after task k
"""
